"""A stored delivery: what it says before an attempt, and what is written down after it.

Promises: fields that cannot be read raise `Corrupt`; the events and fields of an outcome name ids, codes and
numbers only, never a URL, a body or a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from contracts import events as ev
from contracts.errors import Corrupt
from services.notifier.attempt.post import Post, Report
from services.notifier.attempt.verdict import (
    Answered,
    Delivered,
    EndpointGone,
    Exhausted,
    RetryAt,
    Verdict,
    describe,
)

WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A waiting delivery as it is to be sent; `attempt` is the number of the try that comes next, from 1."""

    id: str
    attempt: int
    url: str
    tenant_id: str
    job_id: str
    event_type: str
    message_id: str
    body: bytes
    traceparent: str | None = None

    def post(self, secrets: tuple[str, ...], timestamp_s: int) -> Post:
        """Return the attempt; every try sends the same id and bytes with a time and a signature of its own."""
        return Post(
            url=self.url,
            message_id=self.message_id,
            attempt=self.attempt,
            timestamp_s=timestamp_s,
            secrets=secrets,
            body=self.body,
            traceparent=self.traceparent,
        )


def read_delivery(delivery_id: str, fields: Mapping[str, str]) -> StoredDelivery | None:
    """Read a delivery; None when it is settled already. Raises Corrupt."""
    try:
        if fields["state"] != WAITING:
            return None
        return StoredDelivery(
            id=delivery_id,
            attempt=int(fields["try"]) + 1,
            url=fields["url"],
            tenant_id=fields["tenant"],
            job_id=fields["job"],
            event_type=fields["event"],
            message_id=fields["message"],
            body=fields["body"].encode(),
            traceparent=fields.get("traceparent"),
        )
    except (KeyError, ValueError) as error:
        raise Corrupt(delivery_id, f"the delivery cannot be read: {error!r}") from error


def tries_of(fields: Mapping[str, str]) -> int:
    """Return how many tries were recorded, as far as that can be read."""
    tries = fields.get("try", "")
    return int(tries) if tries.isdecimal() else 0


def set_aside_fields() -> dict[str, str]:
    """Return the fields of a delivery that cannot be read: it stays for a person to look at."""
    return {"state": "unreadable"}


def attempt_events(delivery: StoredDelivery, report: Report, verdict: Verdict) -> tuple[ev.Event, ...]:
    """Return `webhook.attempted`, and `webhook.exhausted` when it was the last attempt without success."""
    outcome = report.outcome
    attempted = ev.WebhookAttempted(
        delivery_id=delivery.id,
        job_id=delivery.job_id,
        event_type=delivery.event_type,
        attempt=delivery.attempt,
        outcome=describe(outcome),
        status=outcome.status if isinstance(outcome, Answered) else None,
        ms=report.elapsed_ms,
        next_at_ms=verdict.at_ms if isinstance(verdict, RetryAt) else None,
    )
    if not isinstance(verdict, Exhausted | EndpointGone):
        return (attempted,)
    exhausted = ev.WebhookExhausted(
        delivery_id=delivery.id,
        job_id=delivery.job_id,
        event_type=delivery.event_type,
        attempts=delivery.attempt,
        outcome=verdict.why,
    )
    return (attempted, exhausted)


def fields_after(verdict: Verdict, outcome: str) -> dict[str, str]:
    """Return the fields to set. A dead letter keeps its bytes for a redrive; what was delivered needs them no more."""
    match verdict:
        case Delivered():
            return {"state": "delivered", "outcome": outcome, "body": ""}
        case RetryAt():
            return {"outcome": outcome}
        case Exhausted():
            return {"state": "exhausted", "outcome": outcome}
        case EndpointGone():
            return {"state": "gone", "outcome": outcome}

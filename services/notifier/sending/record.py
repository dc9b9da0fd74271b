"""A stored delivery: what it says before an attempt, and what is written down after it. Pure.

Promises: fields that cannot be read raise `Corrupt`; the events of an outcome name ids, codes and numbers only, never a
URL, a body or a secret. What the receiver answered is in the delivery's own fields, for its tenant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from contracts import events as ev
from contracts.deliveries import KEEP_DEAD_S, KEEP_SETTLED_S, Attempted, Claimed, Settlement
from contracts.errors import Corrupt
from contracts.webhook_keys import WebhookKey
from services.notifier.attempt.post import Post, Report
from services.notifier.attempt.verdict import (
    OURS,
    Answered,
    Delivered,
    EndpointGone,
    Exhausted,
    Outcome,
    RetryAt,
    Unanswered,
    Verdict,
    describe,
    slow_down_ms,
)

SPREAD_RATIO = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """Where a delivery goes, what signs it, the receiver's own headers, and the hosts that its tenant is held to."""

    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    hosts: tuple[str, ...] | None = None
    key: WebhookKey | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A claimed delivery as it is to be sent.

    `attempt` is the number of the try that comes next, from 1; `base` how many of them belong to earlier budgets.
    """

    id: str
    endpoint: str
    attempt: int
    base: int
    url: str = field(repr=False)  # it may hold a token
    tenant_id: str
    job_id: str
    event_type: str
    message_id: str
    body: bytes = field(repr=False)
    traceparent: str | None = None
    content_type: str = "application/json"
    model: str | None = None  # of its job

    def post(self, target: Target, timestamp_s: int) -> Post:
        """Return the attempt; every try sends the same id and bytes with a time and a signature of its own."""
        return Post(
            url=target.url,
            message_id=self.message_id,
            attempt=self.attempt,
            timestamp_s=timestamp_s,
            secrets=target.secrets,
            headers=target.headers,
            receiver=self.endpoint,
            hosts=target.hosts,
            key=target.key,
            body=self.body,
            traceparent=self.traceparent,
            content_type=self.content_type,
        )


def read_delivery(claimed: Claimed) -> StoredDelivery:
    """Read a delivery. Raises Corrupt."""
    fields = claimed.fields
    try:
        return StoredDelivery(
            id=claimed.id,
            endpoint=claimed.endpoint,
            attempt=int(fields["try"]) + 1,
            base=int(fields.get("base", "0")),
            url=fields.get("url", ""),
            tenant_id=fields["tenant"],
            job_id=fields["job"],
            event_type=fields["event"],
            message_id=fields["message"],
            body=fields["body"].encode(),
            traceparent=fields.get("traceparent"),
            content_type=fields.get("content", "application/json"),
            model=fields.get("model"),
        )
    except (KeyError, ValueError) as error:
        # Not the error itself: it may quote what is in there.
        what = f"{error} is missing" if isinstance(error, KeyError) else type(error).__name__
        raise Corrupt(claimed.id, f"the delivery cannot be read: {what}") from None


def attempt_of(claimed: Claimed) -> int:
    """Return the number of the try that a claim is for, as far as that can be read."""
    tries = claimed.fields.get("try", "")
    return int(tries) + 1 if tries.isdecimal() else 1


def set_aside(claimed: Claimed) -> Settlement:
    """Return what becomes of a delivery that cannot be read: it stays for a person to look at."""
    fields = {"state": "unreadable"}
    return Settlement(claimed.id, claimed.endpoint, attempt_of(claimed), fields, None, keep_s=KEEP_DEAD_S)


def settlement(delivery: StoredDelivery, report: Report, verdict: Verdict, now_ms: int, chance: float) -> Settlement:
    """Return what follows from an attempt. What was sent is kept as long as the delivery is, to be sent again."""
    delivered = isinstance(verdict, Delivered)
    attempted = Attempted(
        succeeded=delivered,
        outcome=_kind(report.outcome),
        took_ms=report.elapsed_ms,
        gate_ms=slow_down_ms(report.outcome, now_ms),
        spread=1 - SPREAD_RATIO + 2 * SPREAD_RATIO * chance,
        is_ours=isinstance(report.outcome, Unanswered) and report.outcome.error in OURS,
    )
    return Settlement(
        id=delivery.id,
        endpoint=delivery.endpoint,
        attempt=delivery.attempt,
        fields=_fields_after(delivery.attempt, report, verdict, now_ms),
        attempted=attempted,
        next_due_ms=verdict.at_ms if isinstance(verdict, RetryAt) else None,
        keep_s=KEEP_SETTLED_S if delivered else KEEP_DEAD_S,
        dead=isinstance(verdict, Exhausted | EndpointGone),
    )


def attempt_events(
    delivery: StoredDelivery, report: Report, verdict: Verdict, endpoint_id: str | None
) -> tuple[ev.Event, ...]:
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
        endpoint_id=endpoint_id,
        tenant_id=delivery.tenant_id,
        model=delivery.model,
    )
    if not isinstance(verdict, Exhausted | EndpointGone):
        return (attempted,)
    exhausted = ev.WebhookExhausted(
        delivery_id=delivery.id,
        job_id=delivery.job_id,
        event_type=delivery.event_type,
        attempts=delivery.attempt,
        outcome=verdict.why,
        endpoint_id=endpoint_id,
    )
    return (attempted, exhausted)


def _fields_after(attempt: int, report: Report, verdict: Verdict, now_ms: int) -> Mapping[str, str]:
    outcome = describe(report.outcome)
    seen: dict[str, object] = {"atMs": now_ms - report.elapsed_ms, "ms": report.elapsed_ms, "outcome": outcome}
    if isinstance(report.outcome, Answered):
        seen["status"] = report.outcome.status
    if report.heard is not None:
        seen |= {"headers": report.heard.headers, "body": report.heard.body}
    return _state_after(verdict) | {"outcome": outcome, f"a:{attempt}": orjson.dumps(seen).decode()}


def _state_after(verdict: Verdict) -> dict[str, str]:
    match verdict:
        case Delivered():
            return {"state": "delivered"}
        case RetryAt():
            return {}
        case Exhausted():
            return {"state": "exhausted"}
        case EndpointGone():
            return {"state": "gone"}


def _kind(outcome: Outcome) -> str:
    """Return the outcome as one of few words, so that counting them needs few series."""
    return f"{outcome.status // 100}xx" if isinstance(outcome, Answered) else outcome.error.value

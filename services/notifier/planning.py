"""Which deliveries follow from an event of a job, with the exact bytes each will send.

Promises: the same event always gives the same ids, so that planning it twice makes one delivery; an event and a
job that cannot be read raise `Corrupt` and nothing else.
Does not promise that anything is sent. Here is also the seam for endpoints: `targets` is the one place that
knows who wants an event.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from contracts import events as ev
from contracts import ids
from contracts.deliveries import PlannedDelivery
from contracts.errors import Corrupt
from contracts.events import DEFAULT_WEBHOOK_EVENTS
from contracts.job import JobState
from contracts.positions import Position, entry_ms
from contracts.wire import Entry
from services.notifier.payload import Links, Notice, public_facts, render

GENERATION = 0  # rises when a settled delivery is sent again on request


@dataclass(frozen=True, slots=True)
class Source:
    """The log an event comes from, and where its links lead."""

    pool_code: str
    epoch: int
    links: Links


@dataclass(frozen=True, slots=True)
class Target:
    """Who wants an event: the name of the endpoint, and its URL."""

    endpoint: str
    url: str


@dataclass(frozen=True, slots=True)
class JobBody:
    """What the caller asked for, and what came of it so far."""

    spec: Mapping[str, object]
    outcomes: tuple[Mapping[str, object], ...]

    def result(self) -> object:
        """Return what `run` returned, None when there is none."""
        return next((line["result"] for line in reversed(self.outcomes) if "result" in line), None)

    def metadata(self, sequence: int) -> object:
        """Return the caller's metadata as they were after this event of the job."""
        return self._changed("metadata", sequence) or {}

    def webhook_events(self, sequence: int) -> object:
        """Return what the job's own webhook subscribed to at this event of the job."""
        return self._changed("webhookEvents", sequence)

    def _changed(self, name: str, sequence: int) -> object:
        changes = (line for line in reversed(self.outcomes) if name in line)
        latest = next((line for line in changes if int(str(line.get("sequence") or 0)) <= sequence), self.spec)
        return latest.get(name)

    def error(self, attempt: int) -> Mapping[str, object]:
        """Return the error text of an attempt, {} when there is none."""
        errors = (line.get("error") for line in reversed(self.outcomes))
        return next((error for error in errors if isinstance(error, dict) and error.get("attempt") == attempt), {})


def read_body(job_id: str, body: bytes) -> JobBody:
    """Read the lines of a job's body. Raises Corrupt."""
    try:
        lines = [orjson.loads(line) for line in body.split(b"\n") if line]
    except orjson.JSONDecodeError as error:
        raise Corrupt(job_id, "its body is not lines of JSON") from error
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise Corrupt(job_id, "its body is not lines of JSON objects")
    return JobBody(lines[0], tuple(lines[1:]))


def plan(entry: Entry, state: JobState, body: JobBody, source: Source) -> tuple[PlannedDelivery, ...]:
    """Return the deliveries of one event.

    Args:
        state: the job folded up to this event and no further.
    """
    spec = {**body.spec, "webhookEvents": body.webhook_events(entry.sequence)}
    wanted = targets(entry.type, state.tenant_id, spec)
    if not wanted:
        return ()
    content = render(notice(entry, state, body, source)).decode()
    return tuple(_planned(target, entry, state, body, content) for target in wanted)


def targets(event_type: str, tenant_id: str, spec: Mapping[str, object]) -> tuple[Target, ...]:
    """Return who wants an event: for now the job's own `webhookUrl`, an anonymous endpoint of the tenant."""
    url, events = spec.get("webhookUrl"), spec.get("webhookEvents") or DEFAULT_WEBHOOK_EVENTS
    if not isinstance(url, str) or not isinstance(events, list | tuple) or event_type not in events:
        return ()
    return (Target(anonymous_endpoint(tenant_id, url), url),)


def anonymous_endpoint(tenant_id: str, url: str) -> str:
    """Name the anonymous endpoint behind a URL: one per tenant and origin.

    Not one per URL: a path with a job's id in it would make an endpoint of its own for each job, and a slow receiver
    would then be called without any limit.
    """
    origin = urlsplit(url)
    digest = hashlib.sha256(f"{tenant_id}\n{origin.scheme}://{origin.netloc}".lower().encode()).digest()
    return "anon" + ids.encode_base32(int.from_bytes(digest[:8]), 12)


def notice(entry: Entry, state: JobState, body: JobBody, source: Source) -> Notice:
    """Say what a webhook tells about this event. Raises Corrupt."""
    event = entry.event()
    facts = entry.raw_data() if event is None else event.model_dump(mode="json", by_alias=True, exclude_none=True)
    if state.status is None:
        raise Corrupt(entry.position, f"{state.id} has no status")
    about: dict[str, object] = {
        "userId": body.spec.get("userId"),
        "model": state.model,
        "attempt": state.attempt,
        "metadata": body.metadata(state.sequence),
    }
    return Notice(
        event_type=entry.type,
        event_at_ms=entry_ms(entry.position),
        job_id=state.id,
        status=state.status.value,
        progress=state.progress,
        sequence=entry.sequence,
        position=str(Position(source.pool_code, source.epoch, entry.position)),
        tenant_id=state.tenant_id,
        result_url=_result_url(event, source.links),
        data=about | public_facts(facts, source.links) | _personal(event, body),
    )


def _result_url(event: ev.Event | None, links: Links) -> str | None:
    """Return the link to the first original."""
    artifacts = event.artifacts if isinstance(event, ev.JobCompleted) else ()
    originals = (artifact for artifact in artifacts if artifact.variant == "original")
    return next((links.to(artifact.path, artifact.expires_at_ms) for artifact in originals), None)


def _personal(event: ev.Event | None, body: JobBody) -> dict[str, object]:
    """Return what is kept out of the log: the result, and the text of an error beside its code."""
    match event:
        case ev.JobCompleted():
            return {"result": body.result(), "error": None}
        case ev.JobAttemptFailed(error=error, attempt=attempt) | ev.JobFailed(error=error, attempts=attempt):
            facts = error.model_dump(mode="json", by_alias=True, exclude_none=True)
            return {"error": facts | dict(body.error(attempt))}
        case _:
            return {}


def _planned(target: Target, entry: Entry, state: JobState, body: JobBody, content: str) -> PlannedDelivery:
    fields = {
        "url": target.url,
        "event": entry.type,
        "message": ids.event_id(state.id, entry.sequence),
        "body": content,
    }
    trace = body.spec.get("traceparent")
    if isinstance(trace, str):
        fields["traceparent"] = trace
    return PlannedDelivery(
        id=ids.delivery_id(state.id, entry.sequence, target.endpoint, GENERATION),
        fields=fields,
        endpoint=target.endpoint,
        tenant_id=state.tenant_id,
        job_id=state.id,
        sequence=entry.sequence,
    )

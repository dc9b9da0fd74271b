"""What a webhook says of an event, before it is bytes. Pure.

Promises: what is told is the event and the job of its moment; what the log keeps out (result, error text) comes from
the job's body.
"""

from dataclasses import dataclass

from contracts import events as ev
from contracts import ids
from contracts.envelope import source_of, without_inside
from contracts.errors import Corrupt
from contracts.positions import Position, entry_ms
from contracts.wire import Entry
from services.notifier.payload import Links, Notice, Operation, public_facts
from services.notifier.planning.job_body import JobBody
from services.notifier.planning.story import Moment


@dataclass(frozen=True, slots=True)
class Source:
    """The log an event comes from, and where its links lead."""

    pool_code: str
    epoch: int
    links: Links

    def position(self, entry: Entry) -> str:
        """Return the public position of an entry."""
        return str(Position(self.pool_code, self.epoch, entry.position))


def notice(moment: Moment, body: JobBody, source: Source) -> Notice:
    """Say what a webhook tells about an event of a job. Raises Corrupt."""
    entry, state = moment.entry, moment.after
    event = entry.event()
    facts = entry.raw_data() if event is None else event.model_dump(mode="json", by_alias=True, exclude_none=True)
    facts = without_inside(entry.type, facts)
    if state.status is None:
        raise Corrupt(entry.position, f"{state.id} has no status")
    about: dict[str, object] = {
        "userId": body.spec.get("userId"),
        "model": state.model,
        "attempt": state.attempt,
        "metadata": body.metadata(state.sequence),
    }
    return Notice(
        event_id=ids.event_id(state.id, entry.sequence),
        event_type=entry.type,
        event_at_ms=entry_ms(entry.position),
        source=source_of(entry, facts, moment.before.worker_id or state.worker_id),
        traceparent=body.traceparent(),
        job_id=state.id,
        status=state.status.value,
        progress=state.progress,
        sequence=entry.sequence,
        position=source.position(entry),
        tenant_id=state.tenant_id,
        result_url=_result_url(event, source.links),
        data=about | public_facts(facts, source.links) | _personal(event, body),
    )


def operation(entry: Entry, tenant_id: str, source: Source) -> Operation:
    """Say what a webhook tells about an event of an endpoint. Raises Corrupt."""
    return Operation(
        event_id=ids.entry_event_id(source.pool_code, source.epoch, entry.position),
        event_type=entry.type,
        event_at_ms=entry_ms(entry.position),
        endpoint_id=entry.subject,
        position=source.position(entry),
        tenant_id=tenant_id,
        data=public_facts(entry.raw_data(), source.links),
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

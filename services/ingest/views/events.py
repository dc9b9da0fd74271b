"""Log entries as the public event record: the same object in lists, live streams and exports."""

from contracts.ids import event_id
from contracts.job import JobState
from contracts.positions import Position, entry_ms
from contracts.wire import Entry
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import Place
from services.ingest.views.times import instant

_INGEST = frozenset(
    {"job.created", "job.scheduled", "job.priority_changed", "job.metadata_changed", "job.cancel_requested",
     "job.retried"}
)  # fmt: skip
_SCHEDULER = frozenset(
    {"job.assigned", "job.unassigned", "job.lease_lost", "job.expired", "job.dead_lettered", "job.forgotten"}
)
# Written by the worker when it names one, otherwise by the scheduler in its place.
_EITHER = frozenset({"job.queued", "job.attempt_failed", "job.failed"})


def event_view(entry: Entry, before: JobState, after: JobState, place: Place) -> JsonObject:
    """Return one event of a job, given the job folded without and with it."""
    data = entry.raw_data()
    time = instant(entry_ms(entry.position))
    source = _source(entry, data, before.worker_id or after.worker_id)
    kind, _, actor_id = source.partition("/")
    return {
        "id": event_id(entry.subject, entry.sequence),
        "type": entry.type,
        "version": entry.version,
        "position": str(Position(place.code, place.epoch, entry.position)),
        "sequence": entry.sequence,
        "time": time,
        "recordedTime": time,
        "subject": entry.subject,
        "tenantId": after.tenant_id,
        "source": source,
        "actor": {"type": kind, "id": actor_id or kind},
        "fence": entry.fence,
        "attempt": after.attempt,
        "correlationId": entry.subject,
        "data": _with_urls(data, place.public_url),
    }


def _source(entry: Entry, data: JsonObject, holder: str | None) -> str:
    if entry.type in _INGEST or (entry.type == "job.cancelled" and data.get("how") == "queued"):
        return "ingest"
    if entry.type in _SCHEDULER or (entry.type in _EITHER and "workerId" not in data):
        return "scheduler"
    worker_id = data.get("workerId") or holder
    return f"worker/{worker_id}" if worker_id else "worker"


def _with_urls(value: JsonObject, public_url: str) -> JsonObject:
    """Add `url` wherever a stored file is named by its path: events keep no host, callers need one."""
    shown = {name: _shown(inner, public_url) for name, inner in value.items()}
    path = value.get("path")
    return shown | {"url": public_url + path} if isinstance(path, str) else shown


def _shown(value: object, public_url: str) -> object:
    if isinstance(value, dict):
        return _with_urls(value, public_url)
    if isinstance(value, list):
        return [_shown(inner, public_url) for inner in value]
    return value

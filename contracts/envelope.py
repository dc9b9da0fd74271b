"""Log entries as the public event record: the same object in lists, live streams, exports and Kafka records.

Pure. Promises: `entry_of` reads from a record what a consumer of the log would have read from the log; the JSON may
be spelled otherwise, and the position of the job's previous event is not in a record, nor what names other tenants.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from contracts.errors import Corrupt
from contracts.ids import entry_event_id, event_id
from contracts.job import JobState
from contracts.positions import BadPosition, Position, entry_ms, parse_position
from contracts.times import instant
from contracts.wire import Entry

JsonObject = dict[str, Any]
MOST = 2**53  # beyond, numbers of JSON and of Lua are not whole any more
_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")

_INGEST = frozenset(
    {"job.created", "job.scheduled", "job.priority_changed", "job.metadata_changed", "job.webhook_changed",
     "job.cancel_requested", "job.retried", "job.redriven", "job.discarded", "job.erased"}
)  # fmt: skip
_SCHEDULER = frozenset(
    {"job.assigned", "job.unassigned", "job.lease_lost", "job.expired", "job.dead_lettered", "job.forgotten"}
)
# Written by the worker when it names one, otherwise by the scheduler in its place.
_EITHER = frozenset({"job.queued", "job.attempt_failed", "job.failed"})
# What is in the log alone: the tenant of the fair choice is mostly another one.
_INSIDE = {"job.assigned": frozenset({"anchor"})}


# Of what belongs to no job: who writes events of this kind.
_SOURCE_OF_KIND = {
    "webhook": "notifier",
    "log": "archivist",
    "archive": "ingest",
    "slot": "scheduler",
    "policy": "scheduler",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The log that an entry lies in, and how links to stored files begin."""

    pool_code: str
    epoch: int
    public_url: str = ""


def event_view(entry: Entry, before: JobState, after: JobState, origin: Origin) -> JsonObject:
    """Return one event of a job, given the job folded without and with it."""
    data = without_inside(entry.type, entry.raw_data())
    time = instant(entry_ms(entry.position))
    source = source_of(entry, data, before.worker_id or after.worker_id)
    kind, _, actor_id = source.partition("/")
    return {
        "id": event_id(entry.subject, entry.sequence),
        "type": entry.type,
        "version": entry.version,
        "position": str(Position(origin.pool_code, origin.epoch, entry.position)),
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
        "data": _with_urls(data, origin.public_url),
    }


def entry_view(entry: Entry, origin: Origin) -> JsonObject:
    """Return an event that belongs to no job as the same kind of record: what an operator sees."""
    data = entry.raw_data()
    kind = entry.type.partition(".")[0]
    source = f"worker/{entry.subject}" if kind == "worker" else _SOURCE_OF_KIND.get(kind, "headrace")
    name, _, actor_id = source.partition("/")
    time = instant(entry_ms(entry.position))
    return {
        "id": entry_event_id(origin.pool_code, origin.epoch, entry.position),
        "type": entry.type,
        "version": entry.version,
        "position": str(Position(origin.pool_code, origin.epoch, entry.position)),
        "sequence": entry.sequence,
        "time": time,
        "recordedTime": time,
        "subject": entry.subject,
        "tenantId": data.get("tenantId"),
        "source": source,
        "actor": {"type": name, "id": actor_id or name},
        "fence": entry.fence,
        "attempt": 0,
        "correlationId": entry.subject,
        "data": data,
    }


def entry_of(view: Mapping[str, Any], *, hooked: bool) -> tuple[Position, Entry]:
    """Read a record back: where it came from, and the entry as it lay there. Raises Corrupt.

    Args:
        hooked: the mark of the entry, which is no part of the public record.
    """
    try:
        position = parse_position(view["position"])
        entry = Entry(
            position=position.entry,
            type=_type(view["type"]),
            subject=_text(view["subject"]),
            data=orjson.dumps(_without_urls(view["data"])),
            version=_count(view["version"], 1),
            sequence=_count(view["sequence"]),
            fence=_count(view["fence"]),
            hooked=hooked,
        )
    except (BadPosition, KeyError, TypeError, ValueError, AttributeError) as error:
        what = repr(error) if isinstance(error, KeyError) else type(error).__name__
        raise Corrupt("record", f"it is not an event record: {what}") from error
    return position, entry


def without_inside(event_type: str, facts: Mapping[str, Any]) -> JsonObject:
    """Return the facts of an event that its tenant may see: nothing of them names another tenant."""
    inside = _INSIDE.get(event_type, frozenset())
    return {name: value for name, value in facts.items() if name not in inside}


def _type(value: object) -> str:
    if not _TYPE.fullmatch(_text(value)):
        raise ValueError("it is no type of events")  # what follows a slash would be read as the version
    return _text(value)


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MOST:
        raise ValueError("it is no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {type(value).__name__}")
    return value


def source_of(entry: Entry, data: Mapping[str, Any], holder: str | None) -> str:
    """Return who wrote an event; `holder` is the worker that had the job."""
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


def _without_urls(value: JsonObject) -> JsonObject:
    kept = value.items() if not isinstance(value.get("path"), str) else [i for i in value.items() if i[0] != "url"]
    return {name: _hidden(inner) for name, inner in kept}


def _hidden(value: object) -> object:
    if isinstance(value, dict):
        return _without_urls(value)
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value

"""What tenants used, folded from the log and from nothing else. Pure.

Promises: after any prefix of a log the rows are the same, however it was cut into pieces; an attempt is counted once,
on the day it ended, with what the scheduler charges for it (`contracts.device_time`). So what was handed back, or lost
with its worker, is nobody's, and what a fenced worker wrote too late is not in the log at all.
Does not know the owners of jobs: they are given, so that memory follows the attempts under way, not the jobs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from contracts import events as ev
from contracts.device_time import charged_ms, share_ms, taken_ms
from contracts.errors import Corrupt
from contracts.positions import START, entry_ms
from contracts.times import DAY_MS
from contracts.usage import rows
from contracts.usage.rows import Key, Row
from contracts.wire import Entry

_ENDS = {
    ev.JobCompleted.TYPE: rows.COMPLETED,
    ev.JobFailed.TYPE: rows.FAILED,
    ev.JobCancelled.TYPE: rows.CANCELLED,
    ev.JobExpired.TYPE: rows.EXPIRED,
}
# What an attempt goes through, and what may end it.
_MOVES = frozenset(
    {ev.JobAssigned.TYPE, ev.JobUnassigned.TYPE, ev.JobStarted.TYPE, ev.ModelLoadCompleted.TYPE,
     ev.JobDeviceReleased.TYPE, ev.JobQueued.TYPE, ev.JobLeaseLost.TYPE}
)  # fmt: skip
_OWNED = frozenset({*_ENDS, ev.JobAttemptFailed.TYPE, ev.ArtifactUploaded.TYPE})
_COUNTED = _MOVES | _OWNED | {ev.JobCreated.TYPE, ev.WebhookAttempted.TYPE}


class Owner(NamedTuple):
    """Whose job it is, and of which model."""

    tenant_id: str
    model: str


class Flight(NamedTuple):
    """An attempt that is under way, or offered to a batch: then it has not started."""

    sharers: int = 1
    started_ms: int | None = None
    released_ms: int | None = None  # what its worker said that it took
    load_ms: int = 0


class UsageFold:
    """Rows since it was made, or since `take_rows`; `flights` is all that it must be given to go on elsewhere."""

    def __init__(self, position: str = START, flights: Mapping[str, Flight] | None = None) -> None:
        self.position = position
        self.flights = dict(flights or {})
        self.rows: dict[Key, Row] = {}

    def apply(self, entry: Entry, owner: Owner | None) -> None:
        """Take in the next entry. `owner`: of its job, where `needs_owner` says so; None: nobody knows any more."""
        self.position = entry.position
        if entry.type not in _COUNTED:
            return
        try:
            event = entry.event()
        except Corrupt:
            return  # every fold skips it alike
        if event is not None:
            self._count(entry, event, owner, entry_ms(entry.position))

    def take_rows(self) -> dict[Key, Row]:
        """Return what was counted since the last time."""
        taken, self.rows = self.rows, {}
        return taken

    def _count(self, entry: Entry, event: ev.Event, owner: Owner | None, now_ms: int) -> None:
        match event:
            case ev.JobCreated():
                self._add(now_ms, Owner(event.tenant_id, event.model), rows.CREATED, 1)
            case ev.WebhookAttempted(tenant_id=tenant_id):
                of = None if tenant_id is None else Owner(tenant_id, event.model or "")
                self._add(now_ms, of, rows.DELIVERY_ATTEMPTS, 1)
                self._add(now_ms, of, rows.DELIVERIES, int(event.next_at_ms is None and is_delivered(event)))
            case ev.ArtifactUploaded(artifact=artifact):
                self._add(now_ms, owner, rows.ARTIFACT_BYTES, artifact.bytes)
            case _ if entry.type in _MOVES:
                self._move(entry.subject, event, now_ms)
            case _:
                self._settle(entry.subject, event, owner, now_ms)
                if entry.type in _ENDS:
                    self._add(now_ms, owner, _ENDS[entry.type], 1)

    def _move(self, job_id: str, event: ev.Event, now_ms: int) -> None:
        flight = self.flights.get(job_id, Flight())
        match event:
            case ev.JobStarted():
                self.flights[job_id] = Flight(flight.sharers, now_ms)
            case ev.ModelLoadCompleted(ms=ms) if flight.started_ms is not None:
                self.flights[job_id] = flight._replace(load_ms=share_ms(ms, flight.sharers))
            case ev.JobDeviceReleased(gpu_ms=ms) if flight.started_ms is not None:
                self.flights[job_id] = flight._replace(released_ms=ms)
            case ev.JobAssigned(batch_size=size) if size is not None and size > 1:
                self.flights[job_id] = Flight(size)
            case ev.ModelLoadCompleted() | ev.JobDeviceReleased():
                return
            case _:  # an offer that is no batch's, or taken back; an attempt that costs nobody anything
                self.flights.pop(job_id, None)

    def _settle(self, job_id: str, event: ev.Event, owner: Owner | None, now_ms: int) -> None:
        flight = self.flights.pop(job_id, None)
        if flight is None or flight.started_ms is None:
            return
        charged = charged_ms(event, taken_ms(flight.started_ms, flight.released_ms, flight.sharers, now_ms))
        if charged is not None:
            self._add(now_ms, owner, rows.GPU_MS, charged)
            self._add(now_ms, owner, rows.LOAD_MS, flight.load_ms)

    def _add(self, now_ms: int, owner: Owner | None, metric: int, number: int) -> None:
        if owner is not None and number:
            key = Key(now_ms // DAY_MS, owner.tenant_id, owner.model)
            self.rows.setdefault(key, rows.empty())[metric] += number


def is_delivered(event: ev.WebhookAttempted) -> bool:
    """Whether the receiver took it."""
    return event.status is not None and 200 <= event.status <= 299


def needs_owner(entry: Entry) -> bool:
    """Whether the owner of an entry's job must be known to count it."""
    return entry.type in _OWNED


def write_flights(flights: Mapping[str, Flight]) -> str:
    """Write them so that the same ones give the same text."""
    return orjson.dumps({job_id: list(flights[job_id]) for job_id in sorted(flights)}).decode()


def read_flights(text: str) -> dict[str, Flight]:
    """Read them back. Raises ValueError, TypeError.

    >>> read_flights(write_flights({"job_a": Flight(2, 7)}))
    {'job_a': Flight(sharers=2, started_ms=7, released_ms=None, load_ms=0)}
    """
    return {job_id: Flight(*numbers) for job_id, numbers in orjson.loads(text or "{}").items()}


def learn(owners: dict[str, Owner], entry: Entry) -> None:
    """Note whose job is created, and let go of one that is forgotten."""
    if entry.type == ev.JobForgotten.TYPE:
        owners.pop(entry.subject, None)
    elif entry.type == ev.JobCreated.TYPE and (owner := owner_told(entry)) is not None:
        owners[entry.subject] = owner


def owner_told(created: Entry) -> Owner | None:
    """Return whose job a `job.created` says that it is; None where it cannot be read."""
    try:
        event = created.event()
    except Corrupt:
        return None
    return Owner(event.tenant_id, event.model) if isinstance(event, ev.JobCreated) else None

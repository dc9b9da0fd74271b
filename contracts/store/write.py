"""How a decision travels to the function library: guards, events, and what else changes, as one JSON object.

A `Write` is what Python has decided; `KeyRing` collects the keys it touches, since a function may only touch keys
that were passed in. The Lua side of this is `lua/_prelude.lua`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import orjson

from contracts.events import Event, JobDiscarded, JobFailed
from contracts.job_changes import changes
from contracts.store import keys
from contracts.wire import wire_type


class JobGuard(NamedTuple):
    """What must hold of the job; None means not looked at."""

    states: tuple[str, ...] | None = None
    sequence: int | None = None
    fence: int | None = None
    run: int | None = None
    offer_id: str | None = None  # stands
    worker_id: str | None = None  # holds the attempt
    not_cancelled: bool = False  # no cancel was requested

    def encode(self) -> dict[str, object]:
        """Return the `g` of the prelude."""
        fields = zip(_GUARDS, self, strict=True)
        return {name: value for name, value in fields if value is not None and value is not False}


_GUARDS = ("s", "n", "f", "r", "o", "w", "c")  # of the prelude, in the order of the fields


class WorkerGuard(NamedTuple):
    """What must hold of a worker."""

    worker_id: str
    open: bool = False
    deck_empty: int | None = None  # of this slot
    batch: str = ""  # then the deck may also hold offers of this batch
    heartbeat: int | None = None  # the counter is still this, or the worker is gone


class WorkerFields(NamedTuple):
    """Fields of a worker's hash to set; an empty value removes the field. Decks: `on_deck` and `off_deck`."""

    worker_id: str
    fields: Mapping[str, str]


def on_deck(worker_id: str, slot: int, job_id: str, offer_id: str, batch: str = "") -> WorkerFields:
    """Put an offer on the slot's deck: alone, or beside the others of its batch."""
    offer = f"{job_id} {offer_id}"
    return WorkerFields(worker_id, {f"d{slot}": f"+batch {batch} {offer}" if batch else offer})


def off_deck(worker_id: str, slot: int, job_id: str, offer_id: str) -> WorkerFields:
    """Take this offer off the slot's deck, and nothing else that may lie there by now."""
    return WorkerFields(worker_id, {f"d{slot}": f"-{job_id} {offer_id}"})


class WorkEntry(NamedTuple):
    """A message in a worker's work stream: offer, withdraw, cancel."""

    worker_id: str
    kind: str
    data: Mapping[str, object]


class Write(NamedTuple):
    """One decision, all or nothing. Without `of_job` its events belong to no job (workers, policy)."""

    subject: str
    events: Sequence[Event] = ()
    of_job: bool = True
    fence: int = 0  # only job.started changes it; the others carry it for their own event
    hooked: frozenset[str] = frozenset()  # event types that the job's webhook subscribes to
    guard: JobGuard | None = None
    worker_guard: WorkerGuard | None = None
    closes_for: str | None = None  # the run ends: the tenant whose list it leaves
    opens_for: str | None = None
    worker_fields: Sequence[WorkerFields] = ()
    work: Sequence[WorkEntry] = ()
    ack: tuple[str, tuple[str, ...]] | None = None  # worker, entries of its stream that are done with
    forget: tuple[str, int] | None = None  # tenant, seconds for which the id stays known
    remove_worker: str | None = None
    erases: str | None = None  # the body goes, and this says what else is to be removed


@dataclass(slots=True)
class KeyRing:
    """The KEYS of one call; `index` is 1-based as in Lua."""

    pool: str
    keys: list[str]
    _places: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = dict(zip(self.keys, count(1), strict=False))

    def index(self, key: str) -> int:
        """Return the place of `key`, adding it when it is new."""
        place = self._places.get(key)
        if place is None:
            self.keys.append(key)
            place = self._places[key] = len(self.keys)
        return place


def encode(write: Write, ring: KeyRing) -> bytes:
    """Return the JSON of a write; its keys are added to `ring`."""
    return orjson.dumps(as_object(write, ring))


def as_object(write: Write, ring: KeyRing) -> dict[str, Any]:
    """Return a write as the prelude reads it; its keys are added to `ring`."""
    pool = ring.pool
    out: dict[str, Any] = {"j": write.subject, "ev": [_event(write, event) for event in write.events]}
    if write.of_job:
        out["k"] = ring.index(keys.job(pool, write.subject))
    if write.guard is not None:
        out["g"] = write.guard.encode()
    if write.worker_guard is not None:
        out["gw"] = _worker_guard(write.worker_guard, ring)
    if write.closes_for is not None:
        out["close"] = ring.index(keys.jobs(pool, write.closes_for))
        out["once"] = ring.index(keys.dedup_in_flight(pool, write.closes_for))
    if write.opens_for is not None:
        out["open"] = ring.index(keys.jobs(pool, write.opens_for))
    if any(isinstance(event, JobFailed) and event.dead_lettered for event in write.events):
        out["letter"] = ring.index(keys.dead_letters(pool))
    elif write.opens_for or write.forget or any(isinstance(event, JobDiscarded) for event in write.events):
        out["unletter"] = ring.index(keys.dead_letters(pool))
    if write.worker_fields:
        out["hset"] = [_fields(change, ring) for change in write.worker_fields]
    if write.work:
        out["add"] = [_work(entry, ring) for entry in write.work]
    if write.ack is not None and write.ack[1]:
        out["ack"] = [ring.index(keys.work(pool, write.ack[0])), *write.ack[1]]
    if write.forget is not None:
        out |= _forget(write.subject, write.forget, ring)
    if write.erases is not None:
        body, waiting = keys.body(pool, write.subject), keys.erasing(pool)
        out["erase"] = [ring.index(body), ring.index(waiting), write.erases]
    if write.remove_worker is not None:
        names = (keys.worker(pool, write.remove_worker), keys.work(pool, write.remove_worker))
        out |= {"del": [ring.index(name) for name in names], "leaves": ring.index(keys.workers(pool))}
    return out


def _event(write: Write, event: Event) -> list[object]:
    fields = changes(event, write.fence) if write.of_job else {}
    flat = [text for pair in fields.items() for text in pair]
    return [wire_type(event), event.to_json(), int(event.TYPE in write.hooked), flat]


def _worker_guard(guard: WorkerGuard, ring: KeyRing) -> dict[str, object]:
    out: dict[str, object] = {"k": ring.index(keys.worker(ring.pool, guard.worker_id))}
    if guard.open:
        out["open"] = 1
    if guard.deck_empty is not None:
        out["deck"] = guard.deck_empty
    if guard.batch:
        out["batch"] = guard.batch
    if guard.heartbeat is not None:
        out["hb"] = guard.heartbeat
    return out


def _fields(change: WorkerFields, ring: KeyRing) -> list[object]:
    flat = [text for pair in change.fields.items() for text in pair]
    return [ring.index(keys.worker(ring.pool, change.worker_id)), *flat]


def _work(entry: WorkEntry, ring: KeyRing) -> list[object]:
    place = ring.index(keys.work(ring.pool, entry.worker_id))
    return [place, "kind", entry.kind, "d", orjson.dumps(entry.data).decode()]


def _forget(job_id: str, forget: tuple[str, int], ring: KeyRing) -> dict[str, object]:
    tenant_id, ttl_s = forget
    pool = ring.pool
    body, hash_key = keys.body(pool, job_id), keys.job(pool, job_id)
    marks = [ring.index(keys.admitted(pool, job_id)), ttl_s, ring.index(keys.jobs(pool, tenant_id))]
    return {"forget": marks, "del": [ring.index(hash_key), ring.index(body)]}

"""What a worker writes: registration, heartbeats, starts, progress, ends. See the verbs' heads in `lua/`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from contracts import events as ev
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.write import JobGuard, KeyRing, WorkEntry, Write, encode, off_deck


class Offer(NamedTuple):
    """An offer as it lies on a worker's deck. `fence` and `attempt` are the job's while the offer stands."""

    job_id: str
    offer_id: str
    slot: int
    fence: int
    attempt: int
    max_attempts: int
    tenant_id: str
    model: str
    timeout_ms: int
    bytes: int = 0
    est_ms: int = 0
    webhook_events: tuple[str, ...] = ()
    batch: str = ""  # offers of one batch are run in one pass
    alone: bool = False  # in a fresh child that has the whole device

    def to_data(self) -> dict[str, object]:
        """Return the JSON of the work entry."""
        return self._asdict()


def read_offer(data: bytes) -> Offer:
    """Read the `d` of an offer in a work stream; fields of a newer scheduler are left out.

    Raises ValueError, KeyError or TypeError for what is no offer.
    """
    raw = orjson.loads(data)
    raw["webhook_events"] = tuple(raw["webhook_events"])
    for unknown in raw.keys() - _OFFER_FIELDS:
        del raw[unknown]
    return Offer(**raw)


_OFFER_FIELDS = frozenset(Offer._fields)


@dataclass(slots=True)
class Attempt:
    """The right to write about one attempt: (fence, k). One call at a time; each answer uses its k up."""

    pool: str
    worker_id: str
    offer: Offer
    fence: int
    attempt: int
    k: int = 0

    @property
    def job_id(self) -> str:
        """The job."""
        return self.offer.job_id


class Attempts:
    """Calls of one worker in one pool."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def register(self, pool: str, event: ev.WorkerRegistered, fields: Mapping[str, str], now_ms: int = 0) -> str:
        """Make the worker known; returns the position. `fields` are kept in its hash beside `id`."""
        worker_id = event.worker_id
        ring = KeyRing(pool, _worker_keys(pool, worker_id))
        write = encode(Write(worker_id, (event,), of_job=False), ring)
        flat = [text for pair in {"id": worker_id, **fields}.items() for text in pair]
        return replies.reply(await self._call("register", ring.keys, [now_ms, write, *flat])).position

    async def heartbeat(
        self, pool: str, worker_id: str, held: Sequence[tuple[str, int]], done_entries: Sequence[str] = (),
        devices: str = "", profiles: str = "", pins: str = "",
    ) -> replies.Beat:  # fmt: skip
        """Raise the counter; `held` lists (job, fence). Acknowledges work entries that are done with.

        `devices`, `profiles` and `pins` are JSON kept beside the counter; empty when they have not changed.
        """
        fixed = [keys.worker(pool, worker_id), keys.work(pool, worker_id), *(keys.job(pool, job) for job, _ in held)]
        args = [orjson.dumps([list(pair) for pair in held]), devices, profiles, pins, *done_entries]
        return replies.beat(await self._call("heartbeat", fixed, args))

    async def announce(
        self, pool: str, worker_id: str, event: ev.Event, write_id: str, state: str = "", now_ms: int = 0,
        work: Sequence[WorkEntry] = (),
    ) -> replies.Reply:  # fmt: skip
        """Write an event about the worker, put `work` into its stream, set its state; `gone` removes it.

        States: `open`, `draining`, `drained`. GONE if there is no such worker.
        """
        ring = KeyRing(pool, _worker_keys(pool, worker_id))
        write = encode(Write(worker_id, (event,), of_job=False, work=work), ring)
        return replies.reply(await self._call("announce", ring.keys, [now_ms, write_id, write, state]))

    async def start(
        self, attempt: Attempt, event: ev.JobStarted, done_entries: Sequence[str] = (), now_ms: int = 0
    ) -> replies.Started:
        """Ask for the accepted start; only APPLIED lets author code run."""
        ring = KeyRing(attempt.pool, _start_keys(attempt))
        write = encode(_start_write(attempt, event, done_entries), ring)
        args = [now_ms, attempt.worker_id, attempt.offer.offer_id, write]
        return replies.started(await self._call("start", ring.keys, args))

    async def emit(
        self, attempt: Attempt, events: Sequence[ev.Event], *, line: bytes = b"", closes: bool = False,
        not_cancelled: bool = False, now_ms: int = 0,
    ) -> replies.Reply:  # fmt: skip
        """Write events of the attempt; `line` is added to the body, `closes` ends the run.

        `not_cancelled` makes the call a CONFLICT when a cancel was requested: decide again as cancelled.
        Repeats with the same k (a lost reply) are answered as before. Raises StoreUnavailable: call again with
        `repeat`, never with a new k.
        """
        attempt.k += 1
        return await self.repeat(attempt, events, line=line, closes=closes, not_cancelled=not_cancelled, now_ms=now_ms)

    async def repeat(
        self, attempt: Attempt, events: Sequence[ev.Event], *, line: bytes = b"", closes: bool = False,
        not_cancelled: bool = False, now_ms: int = 0,
    ) -> replies.Reply:  # fmt: skip
        """Send the write with the present k once more; its first answer, if there was one, is given again."""
        ring = KeyRing(attempt.pool, _emit_keys(attempt))
        args = _emit_args(attempt, events, line, closes, not_cancelled, ring, now_ms)
        return replies.reply(await self._call("emit", ring.keys, args))

    async def release_and_start(
        self, ending: Attempt, released: ev.JobDeviceReleased, starting: Attempt, event: ev.JobStarted,
        done_entries: Sequence[str] = (), now_ms: int = 0, *, repeat: bool = False,
    ) -> tuple[replies.Reply, replies.Started]:  # fmt: skip
        """End A's device part and start B in one call; each answer stands for itself."""
        ending.k += 0 if repeat else 1
        fixed = _emit_keys(ending)
        fixed += [keys.job(starting.pool, starting.job_id), keys.body(starting.pool, starting.job_id)]
        ring = KeyRing(ending.pool, fixed)
        args = _emit_args(ending, (released,), b"", False, False, ring, now_ms)
        write = encode(_start_write(starting, event, done_entries), ring)
        raw = await self._call("release_and_start", ring.keys, [*args, starting.offer.offer_id, write])
        assert isinstance(raw, list)
        return replies.reply(raw[0]), replies.started(raw[1])

    async def decline(self, pool: str, worker_id: str, offer: Offer, reason: str, now_ms: int = 0) -> replies.Reply:
        """Give an offer back that was not started; REFUSED when it no longer stands."""
        fixed = [keys.log(pool), keys.usage(pool), keys.job(pool, offer.job_id), keys.worker(pool, worker_id),
                 keys.work(pool, worker_id)]  # fmt: skip
        ring = KeyRing(pool, fixed)
        event = ev.JobUnassigned(worker_id=worker_id, offer_id=offer.offer_id, reason=reason)
        write = Write(
            offer.job_id, (event,), guard=JobGuard(offer_id=offer.offer_id),
            worker_fields=(off_deck(worker_id, offer.slot, offer.job_id, offer.offer_id),),
        )  # fmt: skip
        return replies.reply(await self._call("decline", ring.keys, [now_ms, encode(write, ring)]))


def _worker_keys(pool: str, worker_id: str) -> list[str]:
    return [keys.log(pool), keys.worker(pool, worker_id), keys.work(pool, worker_id), keys.workers(pool)]


def _start_keys(attempt: Attempt) -> list[str]:
    pool, job_id, worker_id = attempt.pool, attempt.job_id, attempt.worker_id
    return [keys.log(pool), keys.usage(pool), keys.job(pool, job_id), keys.body(pool, job_id),
            keys.worker(pool, worker_id), keys.work(pool, worker_id)]  # fmt: skip


def _emit_keys(attempt: Attempt) -> list[str]:
    pool, job_id, worker_id = attempt.pool, attempt.job_id, attempt.worker_id
    return [keys.log(pool), keys.usage(pool), keys.job(pool, job_id), keys.body(pool, job_id),
            keys.jobs(pool, attempt.offer.tenant_id), keys.worker(pool, worker_id),
            keys.work(pool, worker_id)]  # fmt: skip


def _start_write(attempt: Attempt, event: ev.JobStarted, done_entries: Sequence[str]) -> Write:
    offer = attempt.offer
    return Write(
        attempt.job_id,
        (event,),
        fence=attempt.fence,
        hooked=frozenset(offer.webhook_events),
        guard=JobGuard(fence=attempt.fence - 1, offer_id=offer.offer_id),
        worker_fields=(off_deck(attempt.worker_id, offer.slot, offer.job_id, offer.offer_id),),
        ack=(attempt.worker_id, tuple(done_entries)),
    )


def _emit_args(
    attempt: Attempt, events: Sequence[ev.Event], line: bytes, closes: bool, not_cancelled: bool,
    ring: KeyRing, now_ms: int,
) -> list[object]:  # fmt: skip
    write = Write(
        attempt.job_id,
        events,
        fence=attempt.fence,
        hooked=frozenset(attempt.offer.webhook_events),
        guard=JobGuard(not_cancelled=True) if not_cancelled else None,
        closes_for=attempt.offer.tenant_id if closes else None,
    )
    return [now_ms, attempt.worker_id, attempt.fence, attempt.k, encode(write, ring), line]

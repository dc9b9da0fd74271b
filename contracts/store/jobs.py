"""What ingest and readers ask of a pool: admit, append, read one job, page through a tenant's jobs."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from contracts.errors import Corrupt
from contracts.job import FIELDS, JobState
from contracts.job_fold import fold, from_hash
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.write import KeyRing, Write, encode
from contracts.wire import Entry, decode

MOST_EVENTS = 5_000

# pool, position, sequence to stop at (exclusive), most events -> a job's events from there back, newest first
Below = Callable[[str, str, int, int], Awaitable[list[Entry]]]


class Limits(NamedTuple):
    """Admission limits of one call: open jobs and their bytes, of the tenant and of the pool; the tenant's rate."""

    tenant_jobs: int = 10_000
    tenant_bytes: int = 1 << 30
    pool_jobs: int = 1_000_000
    pool_bytes: int = 8 << 30
    submits_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class Dedup:
    """A key that one job of the tenant holds in its pool: while it is in flight, or for `ttl_ms`.

    `keep_s`: for so long the id of a deduplicated submission stands for the other job; 0 when nobody will repeat it.
    """

    hash: str
    ttl_ms: int = 0
    keep_s: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """One job as the store has it. `entries` are oldest first; `state` comes from the hash, not from them."""

    state: JobState
    entries: tuple[Entry, ...]
    body: bytes = b""

    @property
    def complete(self) -> bool:
        """Whether the entries reach back to the job's creation."""
        return bool(self.entries) and self.entries[0].sequence == 1

    def folded(self) -> JobState:
        """Fold the entries. Raises Corrupt when they are not complete."""
        if not self.complete:
            raise Corrupt(self.state.position, f"{self.state.id}: its first events are no longer in the log")
        return fold(self.state.id, self.entries)


class Jobs:
    """Calls about jobs; any number of pools. `below` looks for events that the log no longer has."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call
        self.below: Below | None = None

    async def admit(
        self,
        pool: str,
        write: Write,
        body: bytes,
        tenant_id: str,
        limits: Limits,
        now_ms: int = 0,
        deadline_ms: int = 0,
        dedup: Dedup | None = None,
    ) -> replies.Admission:
        """Make a job durable, once for its id, and not later than `deadline_ms` of the server; see `admit.lua`.

        Where another job holds the `dedup` key, nothing is written and that job is named.
        """
        job_id = write.subject
        fixed = [keys.log(pool), keys.job(pool, job_id), keys.body(pool, job_id), keys.jobs(pool, tenant_id),
                 keys.usage(pool), keys.admitted(pool, job_id)]  # fmt: skip
        ring = KeyRing(pool, fixed)
        args = [now_ms, encode(write, ring), body, tenant_id,
                limits.tenant_jobs, limits.tenant_bytes, limits.pool_jobs, limits.pool_bytes, deadline_ms,
                "" if dedup is None else _dedup(dedup, tenant_id, ring)]  # fmt: skip
        return replies.admission(await self._call("admit", ring.keys, args))

    async def refuse(self, pool: str, job_id: str, ttl_s: int) -> replies.Reply:
        """Mark an id that was not admitted so that it never can be; CONFLICT when it was admitted after all."""
        fixed = [keys.job(pool, job_id), keys.admitted(pool, job_id)]
        return replies.reply(await self._call("refuse", fixed, [ttl_s]))

    async def append(
        self, pool: str, write: Write, write_id: str, now_ms: int = 0, *, line: bytes = b"",
        limits: Limits | None = None,
    ) -> replies.Reply:  # fmt: skip
        """Append events of a writer without a fence, and a `line` to the job's body.

        Repeating the call with the same id is harmless. A write that opens the job again may be held to `limits`.
        """
        job_id = write.subject
        ring = KeyRing(pool, [keys.log(pool), keys.usage(pool), keys.job(pool, job_id), keys.body(pool, job_id)])
        args = [now_ms, write_id, encode(write, ring), line, b"" if limits is None else orjson.dumps(limits[:4])]
        return replies.reply(await self._call("append", ring.keys, args))

    async def history(
        self, pool: str, job_id: str, *, after: int = 0, limit: int = MOST_EVENTS, with_body: bool = False
    ) -> History | None:
        """Read a job's state, its newest events after sequence `after`, and its body; None for an unknown job.

        Raises Unavailable when events lie in the archive, and it does not answer.
        """
        fixed = [keys.log(pool), keys.job(pool, job_id), keys.body(pool, job_id)]
        raw = await self._call("history", fixed, [after, limit, "1" if with_body else ""])
        assert isinstance(raw, list)
        flat = replies.texts(raw[0])
        state = from_hash(job_id, dict(zip(flat[::2], flat[1::2], strict=True)))
        if state is None:
            return None
        entries = tuple(_entry(item) for item in reversed(raw[2]))
        first, goes_on = (entries[0].sequence, entries[0].previous) if entries else (state.sequence + 1, state.position)
        if self.below is not None and first > after + 1 and goes_on and len(entries) < limit:
            older = await self.below(pool, goes_on, after, limit - len(entries))
            entries = (*reversed(older), *entries)
        return History(state, entries, raw[1] if isinstance(raw[1], bytes) else b"")

    async def tenants(self, pool: str, job_ids: Sequence[str]) -> dict[str, str]:
        """Return whose jobs these are, in one call; those that are gone are left out."""
        return await self._field(pool, job_ids, "tenant_id")

    async def models(self, pool: str, job_ids: Sequence[str]) -> dict[str, str]:
        """Return of which model jobs are, as name@version, in one call; those that are gone are left out."""
        return await self._field(pool, job_ids, "model")

    async def _field(self, pool: str, job_ids: Sequence[str], name: str) -> dict[str, str]:
        raw = await self._call("tenants", [keys.job(pool, job_id) for job_id in job_ids], [FIELDS[name]])
        found = zip(job_ids, replies.texts(raw), strict=True)
        return {job_id: text for job_id, text in found if text}

    async def page(
        self, pool: str, tenant_id: str, *, below: str = "", limit: int = 50, opened: bool = True, closed: bool = True
    ) -> list[str]:
        """Return up to `limit` job ids of the tenant, newest first, older than `below`."""
        args = [below, limit, "1" if opened else "", "1" if closed else ""]
        return replies.texts(await self._call("page", [keys.jobs(pool, tenant_id)], args))


def _dedup(dedup: Dedup, tenant_id: str, ring: KeyRing) -> bytes:
    in_flight = ring.index(keys.dedup_in_flight(ring.pool, tenant_id))
    for_a_time = ring.index(keys.dedup_for_a_time(ring.pool, tenant_id, dedup.hash))
    return orjson.dumps({"i": in_flight, "t": for_a_time, "f": dedup.hash, "ttl": dedup.ttl_ms, "keep": dedup.keep_s})


def _entry(item: list[object]) -> Entry:
    position, flat = item
    assert isinstance(position, bytes)
    assert isinstance(flat, list)
    return decode(position.decode(), dict(zip(flat[::2], flat[1::2], strict=True)))

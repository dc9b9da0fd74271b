"""What the archivist asks of a pool: take the lead, seal, trim, forget, sign; and what every reader asks: where the log
begins and how far it is archived.

Promises: all of it is fenced by the token of `lead`; nothing is trimmed that is not sealed, in the scheduler's snapshot
and done with by every group; a job is forgotten once, whoever does it (`turn.lua` leaves it to us while we are there).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from redis.asyncio import Redis

from contracts.positions import START
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import as_text, ask, read_hash
from contracts.store.write import KeyRing, Write, as_object, encode

MOST_TRIMMED = 10_000


@dataclass(frozen=True, slots=True)
class Manifest:
    """How far a pool's log is archived; `digest` is the chain's after the entry at `upto`."""

    upto: str = START
    digest: str = "0" * 64
    count: int = 0  # entries in the archive
    below: str = START  # of what lies before it, nothing was ever archived
    epoch: int = 1
    checkpointed: int = 0  # entries archived at the newest checkpoint
    checkpoint_ms: int = 0
    sealed_ms: int = 0
    until_ms: int = 0


class Lead(NamedTuple):
    """`manifest` is None while another archivist leads; then `elsewhere` is where, if it is not our place."""

    manifest: Manifest | None
    now_ms: int = 0  # of the server
    elsewhere: str = ""


class Moved(NamedTuple):
    """A job whose run ended in a segment, or began again: then it has no kind."""

    job_id: str
    kind: str | None
    ms: int


class Standing(NamedTuple):
    """What the archivist must know of a job to forget it."""

    status: str
    tenant_id: str
    run: int
    done_ms: int = 0


class ArchiveCalls:
    """Calls of the archivist, and reading the manifest."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call, self._client = batcher.call, client

    async def manifest(self, pool: str) -> Manifest | None:
        """Return how far the pool is archived; None where no archivist ever was. Raises StoreUnavailable."""
        raw = await read_hash(self._client, keys.archive(pool))
        if not raw:
            return None
        return Manifest(
            raw["upto"], raw["digest"], int(raw["count"]), raw["below"], await self.epoch(pool),
            int(raw.get("checkpointed", 0)), int(raw.get("checkpoint_ms", 0)), int(raw.get("sealed_ms", 0)),
            int(raw.get("until", 0)),
        )  # fmt: skip

    async def lead(self, pool: str, token: str, lease_ms: int, place: str, now_ms: int = 0) -> Lead:
        """Take or keep the lead; `place` names where the archive lies."""
        args = [now_ms, token, lease_ms, place]
        parts = replies.texts(await self._call("lead_archive", [keys.archive(pool), keys.meta(pool)], args))
        if parts[0] != "APPLIED":
            return Lead(None, elsewhere=parts[1] if parts[0] == "CONFLICT" else "")
        _, now, upto, digest, count, below, epoch, checkpointed, checkpoint_ms = parts
        manifest = Manifest(
            upto, digest, int(count), below, int(epoch), int(checkpointed), int(checkpoint_ms),
            until_ms=int(now) + lease_ms,
        )  # fmt: skip
        return Lead(manifest, int(now))

    async def resign(self, pool: str, token: str) -> replies.Reply:
        """End the lease at once."""
        return replies.reply(await self._call("resign_archive", [keys.archive(pool)], [token]))

    async def seal(
        self, pool: str, token: str, seen: str, upto: str, digest: str, count: int, moved: Sequence[Moved],
        now_ms: int = 0,
    ) -> replies.Reply:  # fmt: skip
        """Say that the log is archived up to `upto`, after `seen`."""
        zsets = [keys.ended(pool, kind) for kind in keys.ENDED_KINDS]
        places = {kind: 2 + i for i, kind in enumerate(keys.ENDED_KINDS)}
        jobs = orjson.dumps([[each.job_id, places[each.kind] if each.kind else 0, each.ms] for each in moved])
        args = [now_ms, token, seen, upto, digest, count, jobs]
        return replies.reply(await self._call("seal", [keys.archive(pool), *zsets], args))

    async def trim(self, pool: str, token: str, keep_from_ms: int | None = None) -> tuple[str, int] | None:
        """Trim what nobody needs; returns from where the log is kept, and how much was removed. None: fenced.

        Args:
            keep_from_ms: what was written then or later stays in any case.
        """
        fixed = [keys.archive(pool), keys.log(pool), keys.meta(pool), keys.snapshot(pool)]
        parts = replies.texts(
            await self._call("trim", fixed, [token, MOST_TRIMMED, "" if keep_from_ms is None else keep_from_ms])
        )
        return (parts[1], int(parts[2])) if parts[0] == "APPLIED" else None

    async def ended(self, pool: str, kind: str, before_ms: int, limit: int) -> list[str]:
        """Return up to `limit` jobs that ended before `before_ms` and whose end is sealed, oldest first."""
        raw = await ask(self._client.zrangebyscore(keys.ended(pool, kind), "-inf", f"({before_ms}", start=0, num=limit))
        return [as_text(job_id) for job_id in raw]

    async def bodies(self, pool: str, job_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the bodies of jobs that have one."""
        if not job_ids:
            return {}
        raw = await ask(self._client.mget([keys.body(pool, job_id) for job_id in job_ids]))
        return {job_id: body for job_id, body in zip(job_ids, raw, strict=True) if isinstance(body, bytes)}

    async def standings(self, pool: str, job_ids: Sequence[str]) -> dict[str, Standing]:
        """Return how jobs stand that have a hash. Raises StoreUnavailable."""
        pipe = self._client.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hmget(keys.job(pool, job_id), ["s", "t", "r", "da"])
        rows = await ask(pipe.execute())
        return {
            job_id: Standing(as_text(row[0]), as_text(row[1] or b""), int(row[2] or 0), int(row[3] or 0))
            for job_id, row in zip(job_ids, rows, strict=True)
            if row[0] is not None
        }

    async def postpone(self, pool: str, kind: str, listed: Mapping[str, int]) -> None:
        """List jobs that ended under another ms; one that is not listed any more stays off."""
        await ask(self._client.zadd(keys.ended(pool, kind), dict(listed), xx=True))

    async def forget(
        self, pool: str, token: str, kind: str, needed_from: str, writes: Sequence[Write], now_ms: int = 0
    ) -> int | None:  # fmt: skip
        """Forget jobs where the conditions still hold; returns how many. None: fenced."""
        fixed = [keys.archive(pool), keys.log(pool), keys.usage(pool), keys.ended(pool, kind)]
        ring = KeyRing(pool, fixed)
        listed = orjson.dumps([as_object(write, ring) for write in writes])
        parts = replies.texts(await self._call("forget", ring.keys, [now_ms, token, needed_from, listed]))
        return int(parts[1]) if parts[0] == "APPLIED" else None

    async def checkpoint(self, pool: str, token: str, count: int, write: Write, now_ms: int = 0) -> replies.Reply:
        """Write a signed checkpoint of the first `count` entries of the archive."""
        ring = KeyRing(pool, [keys.archive(pool), keys.log(pool)])
        args = [now_ms, token, count, encode(write, ring)]
        return replies.reply(await self._call("checkpoint", ring.keys, args))

    async def fork(self, pool: str, token: str, epoch: int, highest: str) -> int:
        """Begin a new epoch after `epoch`, with ids above `highest`; returns it, 0 when fenced."""
        fixed = [keys.archive(pool), keys.meta(pool), keys.log(pool)]
        parts = replies.texts(await self._call("fork", fixed, [token, epoch, highest]))
        return int(parts[1]) if parts[0] == "APPLIED" else 0

    async def epoch(self, pool: str) -> int:
        """Return the epoch of a pool's log. Raises StoreUnavailable."""
        return int(await ask(self._client.hget(keys.meta(pool), "epoch")) or 1)

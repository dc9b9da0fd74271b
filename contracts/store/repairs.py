"""What a repair writes: rows of the live state as they follow from the log; `contracts.audit` decides what that is.

Promises: nothing is written over what anybody wrote since it was compared, nor after the log began a new epoch; each
row is changed together with the event that says so, or not at all.
"""

import hashlib
from collections.abc import Mapping

import orjson

from contracts.events import AuditVerified, ProjectionRebuilt
from contracts.store import keys, replies
from contracts.store.audit import NOT_A_STRING
from contracts.store.batcher import Batcher
from contracts.store.write import KeyRing, Write, encode

SUBJECT = "log"


def version_of(row: Mapping[str, str] | None, *, is_hash: bool = True) -> str:
    """Return what `rebuild` calls the state in which a job was found."""
    if row is None:
        return "none"
    return " ".join(row.get(name, "") for name in ("n", "p", "rb")) if is_hash else "other"


class Repairs:
    """Calls of a repair."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def job(
        self, pool: str, job_id: str, tenant_id: str, epoch: int, version: str, fields: Mapping[str, str],
        score: float | None, letter: float | None, event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Make a job's hash and its place in the lists anew; CONFLICT when it is not what it was any more."""
        fixed = [keys.log(pool), keys.meta(pool), keys.job(pool, job_id), keys.jobs(pool, tenant_id)]
        ring = KeyRing(pool, [*fixed, keys.dead_letters(pool)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        flat = orjson.dumps([text for pair in fields.items() for text in pair])
        scores = ["" if each is None else each for each in (score, letter)]
        args = [0, write_id, epoch, version, flat, scores[0], write, scores[1]]
        return replies.reply(await self._call("rebuild", ring.keys, args))

    async def counters(
        self, pool: str, epoch: int, recounted: str, missing: Mapping[str, int], event: ProjectionRebuilt, write_id: str
    ) -> replies.Reply:  # fmt: skip
        """Add to counters of admission what they miss; CONFLICT when another repair did so since they were seen."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), keys.usage(pool)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        args = [0, write_id, epoch, recounted, orjson.dumps(list(missing.items())), write]
        return replies.reply(await self._call("recount", ring.keys, args))

    async def dedup_key(
        self, pool: str, tenant_id: str, dedup_hash: str, epoch: int, there: str | None, holder: str | None,
        event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Say who holds a dedup key; CONFLICT when somebody took it meanwhile."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), keys.dedup_in_flight(pool, tenant_id)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        args = [0, write_id, epoch, dedup_hash, there or "", holder or "", write]
        return replies.reply(await self._call("hold_key", ring.keys, args))

    async def audited(self, pool: str, event: AuditVerified, write_id: str) -> replies.Reply:
        """Say what came of an audit of the whole pool; the newest is kept for whoever watches."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        return replies.reply(await self._call("note", ring.keys, [0, write_id, write, "audited", int(event.ok)]))

    async def body(
        self, pool: str, job_id: str, epoch: int, seen: bytes | None, looked_at: int, body: bytes,
        event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Put a body back; `seen` is what was there of its first bytes. GONE: its job is forgotten, or erased."""
        fixed = [keys.log(pool), keys.meta(pool), keys.job(pool, job_id), keys.body(pool, job_id)]
        ring = KeyRing(pool, fixed)
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        args = [0, write_id, epoch, max(1, looked_at), _seen_as(seen), body, write]
        return replies.reply(await self._call("restore_body", ring.keys, args))

    async def delivery(
        self, pool: str, delivery_id: str, endpoint: str, epoch: int, event: ProjectionRebuilt, write_id: str,
        tries: tuple[str, int] | None = None,
    ) -> replies.Reply:  # fmt: skip
        """Put a delivery that waits into its queue; `tries`: as many as were seen, and as the log tells of."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), keys.deliveries(pool)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        seen, told = ("", 0) if tries is None else tries
        args = [0, write_id, epoch, delivery_id, endpoint, seen, told, write]
        return replies.reply(await self._call("requeue", ring.keys, args))

    async def ended(
        self, pool: str, job_id: str, epoch: int, kind: str | None, ms: int, event: ProjectionRebuilt, write_id: str
    ) -> replies.Reply:  # fmt: skip
        """List a job among those to be forgotten, or no more; CONFLICT: it moved, and the archivist will."""
        fixed = [keys.log(pool), keys.meta(pool), keys.archive(pool), keys.job(pool, job_id)]
        ring = KeyRing(pool, [*fixed, *(keys.ended(pool, each) for each in keys.ENDED_KINDS)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        index = 0 if kind is None else len(fixed) + 1 + keys.ENDED_KINDS.index(kind)
        return replies.reply(await self._call("relist", ring.keys, [0, write_id, epoch, index, ms, write]))


def _seen_as(seen: bytes | None) -> str:
    if seen is None or seen == NOT_A_STRING:
        return "none" if seen is None else "other"
    return hashlib.sha1(seen, usedforsecurity=False).hexdigest()

"""What a repair writes: rows of the live state as they follow from the log; `contracts.audit` decides what that is.

Promises: nothing is written over what anybody wrote since it was compared, nor after the log began a new epoch; each
row is changed together with the event that says so, or not at all.
"""

from collections.abc import Mapping

import orjson

from contracts.events import ProjectionRebuilt
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.write import KeyRing, Write, encode

SUBJECT = "log"


def version_of(row: Mapping[str, str] | None, *, is_hash: bool = True) -> str:
    """Return what `rebuild` calls the state in which a job was found."""
    if row is None:
        return "none"
    return f"{row.get('n', '')} {row.get('p', '')}" if is_hash else "other"


class Repairs:
    """Calls of a repair."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def job(
        self, pool: str, job_id: str, tenant_id: str, epoch: int, version: str, fields: Mapping[str, str],
        score: float | None, event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Make a job's hash and its place in the list anew; CONFLICT when it is not what it was any more."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), keys.job(pool, job_id), keys.jobs(pool, tenant_id)])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        flat = orjson.dumps([text for pair in fields.items() for text in pair])
        args = [0, write_id, epoch, version, flat, "" if score is None else score, write]
        return replies.reply(await self._call("rebuild", ring.keys, args))

    async def counter(
        self, pool: str, name: str, epoch: int, there: str | None, value: str | None, event: ProjectionRebuilt,
        write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Set a counter of admission; CONFLICT when it moved meanwhile."""
        return await self._field(pool, keys.usage(pool), name, epoch, there, value, event, write_id)

    async def dedup_key(
        self, pool: str, tenant_id: str, dedup_hash: str, epoch: int, there: str | None, holder: str | None,
        event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        """Say who holds a dedup key; CONFLICT when somebody took it meanwhile."""
        key = keys.dedup_in_flight(pool, tenant_id)
        return await self._field(pool, key, dedup_hash, epoch, there, holder, event, write_id)

    async def _field(
        self, pool: str, key: str, name: str, epoch: int, there: str | None, value: str | None,
        event: ProjectionRebuilt, write_id: str,
    ) -> replies.Reply:  # fmt: skip
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), key])
        write = encode(Write(SUBJECT, (event,), of_job=False), ring)
        args = [0, write_id, epoch, name, there or "", value or "", write]
        return replies.reply(await self._call("recount", ring.keys, args))

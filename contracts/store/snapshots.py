"""Snapshots of a folded state: stored in parts, named by a pointer that moves forward only.

Promises: the pointer names a snapshot only when all its parts are stored; a writer that dies leaves parts that go by
themselves; `load` returns exactly the bytes that were kept, or None. What the bytes mean is the caller's matter.
"""

import hashlib
from dataclasses import dataclass

from redis.asyncio import Redis

from contracts.errors import Corrupt, StoreUnavailable
from contracts.positions import START
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import LOST, read_hash

PART_BYTES = 1 << 20
ORPHAN_S = 600
TRIES = 3


@dataclass(frozen=True, slots=True)
class Pointer:
    """The newest snapshot: the log is folded up to `position` in it; START and no id when there is none."""

    id: str = ""
    position: str = START
    digest: str = ""


class Snapshots:
    """Calls about the snapshots of a pool's scheduler."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call = batcher.call
        self._client = client

    async def pointer(self, pool: str) -> Pointer:
        """Return where the newest snapshot stands. Raises StoreUnavailable."""
        raw = await read_hash(self._client, keys.snapshot(pool))
        return Pointer(raw["id"], raw["position"], raw["digest"]) if raw else Pointer()

    async def keep(self, pool: str, snapshot_id: str, position: str, data: bytes) -> bool:
        """Store a snapshot and point to it; False when a newer one, or another writer, was faster."""
        seen = await self.pointer(pool)
        parts = keys.snapshot_parts(pool, snapshot_id)
        count = 0
        for at in range(0, max(1, len(data)), PART_BYTES):
            await self._call("keep_part", [parts], [count, data[at : at + PART_BYTES], ORPHAN_S])
            count += 1
        fixed = [keys.snapshot(pool), parts, keys.snapshot_parts(pool, seen.id) if seen.id else parts]
        args = [snapshot_id, position, count, seen.id, hashlib.sha256(data).hexdigest()]
        return replies.reply(await self._call("keep_snapshot", fixed, args)).applied

    async def load(self, pool: str) -> tuple[Pointer, bytes] | None:
        """Return the newest snapshot, None when there is none. Raises Corrupt, StoreUnavailable."""
        for _ in range(TRIES):  # a newer one may be kept, and this one removed, while it is read
            pointer = await self.pointer(pool)
            if not pointer.id:
                return None
            data = await self._data(keys.snapshot_parts(pool, pointer.id))
            if hashlib.sha256(data).hexdigest() == pointer.digest:
                return pointer, data
        raise Corrupt(keys.snapshot(pool), "the parts of the snapshot are not what was kept")

    async def _data(self, key: str) -> bytes:
        parts: list[bytes] = []
        try:
            while part := await self._client.lindex(key, len(parts)):
                parts.append(part if isinstance(part, bytes) else part.encode())
        except LOST as error:
            raise StoreUnavailable(str(error)) from error
        return b"".join(parts)

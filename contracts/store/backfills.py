"""Backfills of a pool: asked for by ingest, done by the notifier."""

from contextlib import suppress

from redis.asyncio import Redis

from contracts.backfills import Backfill, read_backfill
from contracts.errors import Corrupt
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import read_hash
from contracts.store.words import Word

KEPT_DONE_MS = 86_400_000  # a day, to be looked at
MOST_AT_ONCE = 100  # of a pool, those done but not yet removed among them


class Backfills:
    """Calls about backfills."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call = batcher.call
        self._client = client

    async def ask(self, pool: str, backfill: Backfill) -> bool:
        """Write one down, once for its id; False when the pool has too many already."""
        args = [backfill.id, backfill.to_json(), MOST_AT_ONCE]
        return replies.texts(await self._call("ask_backfill", [keys.backfills(pool)], args))[0] == Word.APPLIED

    async def all(self, pool: str) -> tuple[Backfill, ...]:
        """Return those of a pool, oldest first; one that cannot be read is left out."""
        found: list[Backfill] = []
        for name, text in (await read_hash(self._client, keys.backfills(pool))).items():
            with suppress(Corrupt):
                found.append(read_backfill(name, text))
        return tuple(sorted(found, key=lambda backfill: (backfill.asked_ms, backfill.id)))

    async def claim(self, pool: str, who: str, lease_ms: int, now_ms: int = 0) -> Backfill | None:
        """Claim the oldest that nobody works on; it is ours again and again, and another's once the lease ran out.

        Raises Corrupt.
        """
        args = [now_ms, who, lease_ms, KEPT_DONE_MS]
        raw = await self._call("claim_backfill", _both(pool), args)
        assert isinstance(raw, bytes)
        return read_backfill(pool, raw.decode()) if raw else None

    async def keep(self, pool: str, who: str, lease_ms: int, backfill: Backfill, now_ms: int = 0) -> bool:
        """Write down how far it is, and go on; False when it is another's by now, or gone."""
        args = [now_ms, who, lease_ms, backfill.id, backfill.to_json(), "1" if backfill.done_ms else ""]
        return replies.texts(await self._call("keep_backfill", _both(pool), args))[0] == Word.APPLIED


def _both(pool: str) -> list[str]:
    return [keys.backfills(pool), keys.backfill_leases(pool)]

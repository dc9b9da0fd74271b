"""What tenants used, as the archivist has counted it: rows by day, and up to where of the log they are counted.

Promises: rows and position move in one call, fenced by the archivist's token and by the position it saw, so that each
entry of the log counts once; what one look returns was all true at the position it names.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from redis.asyncio import Redis

from contracts.positions import START, entry_ms
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import as_text, ask, server_ms
from contracts.store.write import KeyRing
from contracts.times import DAY_MS, day_text
from contracts.usage.rows import Key, Row, read_rows, write_row

MOST_AT_ONCE = 100  # tenants and days that are read in the loop itself


class Counted(NamedTuple):
    """Up to where it is counted. `flights`: the attempts under way there, as `contracts.usage.fold` writes them.

    `since`: of what came before it in the log, nothing was counted. `first`: the first day that is kept.
    `mended`: how often rows were set right.
    """

    upto: str = START
    flights: str = ""
    since: str = START
    first: int = 0
    mended: int = 0

    @property
    def days(self) -> range:
        """The days that may have rows."""
        return range(max(self.first, entry_ms(self.since) // DAY_MS), entry_ms(self.upto) // DAY_MS + 1)


class Look(NamedTuple):
    """Rows at `counted.upto`; the server's time and the log's epoch at that moment."""

    counted: Counted
    rows: dict[Key, Row]
    now_ms: int
    epoch: int = 1


class UsageCalls:
    """Calls of the archivist, and reading what it counted."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call, self._client = batcher.call, client

    async def look_at_all(self, pool: str) -> Look:
        """Return all rows there are. Raises StoreUnavailable."""
        days = (await self.look(pool, ())).counted.days
        # A segment's last entries may begin a day between the two.
        return await self.look(pool, range(days.start, days.stop + 1))

    async def look(self, pool: str, days: Sequence[int], tenant_id: str | None = None) -> Look:
        """Return the rows of these days, of one tenant or of all. Raises StoreUnavailable."""
        pipe = self._client.pipeline(transaction=True)
        pipe.time()
        pipe.hget(keys.meta(pool), "epoch")
        pipe.hgetall(keys.used(pool))
        for day in days:
            key = keys.used_on(pool, day_text(day))
            if tenant_id is None:
                pipe.hgetall(key)
            else:
                pipe.hget(key, tenant_id)
        now, epoch, raw, *found = await ask(pipe.execute())
        told = found if tenant_id is None else [{tenant_id: text} if text else {} for text in found]
        # A month of many tenants takes long enough to be in the way of others.
        rows = await asyncio.to_thread(_rows, days, told) if sum(map(len, told)) > MOST_AT_ONCE else _rows(days, told)
        return Look(_counted(raw), rows, server_ms(now), int(epoch or 1))

    async def tally(
        self, pool: str, token: str, seen: Counted, upto: str, flights: str, rows: Mapping[Key, Row],
        begun: Mapping[str, str],
    ) -> replies.Reply:  # fmt: skip
        """Add rows to those that are counted as it was `seen`; `begun` may set `since`."""
        return await self._send(pool, token, f"{seen.upto} {seen.mended}", upto, flights, rows, begun)

    async def mend(self, pool: str, seen: Counted, flights: str, changes: Mapping[Key, Row]) -> replies.Reply:
        """Add what rows lack, or have too much (negative), however far it is counted by now.

        CONFLICT when somebody else did so since `seen`. APPLIED names up to where it is counted: attempts under way are
        set only where that is as it was seen.
        """
        return await self._send(pool, "", str(seen.mended), seen.upto, flights, changes, {})

    async def forget_all(self, pool: str, days: Sequence[int]) -> None:
        """Count nothing any more, so that the archivist counts from the beginning. Raises StoreUnavailable."""
        pipe = self._client.pipeline(transaction=True)
        pipe.delete(keys.used(pool), *(keys.used_on(pool, day_text(day)) for day in days))
        await ask(pipe.execute())

    async def drop(self, pool: str, first: int, days: Sequence[int]) -> None:
        """Drop days that are kept no longer; `first` is the first that is. Raises StoreUnavailable."""
        pipe = self._client.pipeline(transaction=True)
        pipe.hset(keys.used(pool), "first", str(first))
        if days:
            pipe.delete(*(keys.used_on(pool, day_text(day)) for day in days))
        await ask(pipe.execute())

    async def _send(
        self, pool: str, token: str, seen: str, upto: str, flights: str, rows: Mapping[Key, Row],
        begun: Mapping[str, str],
    ) -> replies.Reply:  # fmt: skip
        ring = KeyRing(pool, [keys.archive(pool), keys.used(pool)])
        places = {day: ring.index(keys.used_on(pool, day_text(day))) for day in {key.day for key in rows}}
        listed = [[places[key.day], key.tenant_id, key.model, write_row(row)] for key, row in rows.items()]
        more = [text for pair in begun.items() for text in pair]
        args = [token, seen, upto, flights, orjson.dumps(listed), *more]
        return replies.reply(await self._call("tally", ring.keys, args))


def _rows(days: Sequence[int], told: Sequence[Mapping[Any, Any]]) -> dict[Key, Row]:
    return {
        key: row
        for day, tenants in zip(days, told, strict=True)
        for tenant_id, text in tenants.items()
        for key, row in read_rows(day, as_text(tenant_id), as_text(text))
    }


def _counted(raw: Mapping[Any, Any]) -> Counted:
    fields = {as_text(name): as_text(value) for name, value in raw.items()}
    return Counted(
        fields.get("upto", START), fields.get("flights", ""), fields.get("since", START), int(fields.get("first", 0)),
        int(fields.get("mended", 0)),
    )  # fmt: skip

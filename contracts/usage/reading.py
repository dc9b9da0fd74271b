"""Answers what tenants used: what the archivist has counted, and the rest of the log folded on top.

Promises: an answer is exact as of the instant it names. Bounded: where more of the log is not counted than may be
folded at once, the instant lies earlier, and the next answer goes on from there. Where no archivist counts, all of the
log is folded, so the answer reaches back as far as the log does.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.archive import Archive, Gone
from contracts.errors import Corrupt
from contracts.positions import START, entry_ms
from contracts.store import Store
from contracts.times import DAY_MS
from contracts.usage.counting import Counting
from contracts.usage.rows import Key, Row, add, empty

AT_ONCE = 1_000
MOST_FOLDED = 20_000  # in one answer


@dataclass(frozen=True, slots=True)
class Used:
    """Rows of one pool as of an instant. `since_ms`: nothing is known of what came before; None: all is."""

    rows: Mapping[Key, Row]
    as_of_ms: int
    since_ms: int | None


class UsageReader:
    """One pool, for a process that answers often: what was folded for one answer is kept for the next."""

    def __init__(self, store: Store, archive: Archive, pool: str) -> None:
        self._store, self._archive, self._pool = store, archive, pool
        self._rest: Counting | None = None  # of the log beyond what is counted
        self._base = (START, 1)  # up to where it was counted when the rest was begun, and of which log
        self._since = START
        self._turn = asyncio.Lock()

    async def read(self, days: Sequence[int], tenant_id: str | None = None) -> Used:
        """Return what was used on these days, by one tenant or by all. Raises Unavailable."""
        async with self._turn:
            look = await self._store.usage.look(self._pool, days, tenant_id)
            if self._rest is None or (look.counted.upto, look.epoch) != self._base:
                self._base = (look.counted.upto, look.epoch)
                begun = look.counted
                if begun.upto == START:
                    begun = begun._replace(upto=await self._archive.oldest(self._pool), since="")
                self._since = begun.since or begun.upto
                self._rest = Counting(self._store, self._archive, self._pool, begun)
            is_all = await self._fold(self._rest)
            wanted = range(max(days[0], look.counted.first), days[-1] + 1) if days else range(0)
            rows = {key: row for key, row in look.rows.items() if key.day in wanted}
            for key, row in self._rest.fold.rows.items():
                if key.day in wanted and tenant_id in (None, key.tenant_id):
                    add(rows.setdefault(key, empty()), [row])  # of this look alone
            as_of_ms = look.now_ms if is_all else entry_ms(self._rest.fold.position)
            since_ms = max(entry_ms(self._since), look.counted.first * DAY_MS)
            return Used(rows, as_of_ms, since_ms or None)

    async def _fold(self, rest: Counting) -> bool:
        """Fold more of the log; returns whether that was all there is."""
        count = 0
        while count < MOST_FOLDED:
            try:
                found = await self._archive.next(self._pool, rest.fold.position, AT_ONCE)
                if not found:
                    return True
                await rest.take(found)
            except (Corrupt, Gone):
                return False  # a segment that cannot be read, or a log that is not what it was: no further than this
            count += len(found)
        return False

"""Counts what tenants used of what is sealed, and drops days that are kept no longer.

Promises: each sealed entry counts once, whatever fails in between: rows move with the position up to which they are
counted. What was sealed before there was any counting, or by an archivist that died, is counted from the archive.
"""

from collections.abc import Sequence

from contracts.archive import Archive
from contracts.errors import Unavailable
from contracts.positions import START, entry_key
from contracts.store import Store, Word
from contracts.store.log import Poison
from contracts.store.records import Record
from contracts.store.usage import Counted
from contracts.times import DAY_MS
from contracts.usage.counting import Counting
from contracts.usage.fold import write_flights
from contracts.wire import Entry

AT_ONCE = 10_000
MOST_DROPPED = 4_000  # days at once


class UsageKeeper:
    """What is counted of one pool, by the one archivist that leads it."""

    def __init__(self, store: Store, archive: Archive, pool: str, kept_ms: int) -> None:
        self._store, self._archive, self._pool, self._kept_ms = store, archive, pool, kept_ms
        self._counting: Counting | None = None  # once it is known up to where it is counted
        self._seen, self._since = Counted(), dict[str, str]()  # as the store has it; what begins with the next
        self._day = 0

    def begin_again(self) -> None:
        """Ask the store where it stands before anything else is counted."""
        self._counting = None

    async def count(self, token: str, sealed: Sequence[Record]) -> None:
        """Count what was just sealed, if what came before it is counted. Raises Unavailable, Corrupt."""
        if self._counting is not None:
            await self._count(self._counting, token, [record.entry() for record in sealed])

    async def catch_up(self, token: str, upto: str) -> None:
        """Count all that is sealed and not counted. Raises Unavailable, Corrupt, Gone."""
        counting = self._counting or await self._begin(upto)
        at = counting.fold.position
        if entry_key(at) < entry_key(upto):
            async for sealed in self._archive.entries(self._pool, at, upto, AT_ONCE):
                await self._count(counting, token, sealed)
        self._counting = counting

    async def drop_old(self, now_ms: int) -> None:
        """Drop days that ended longer ago than they are kept; looks once a day. Raises Unavailable."""
        first = (now_ms - self._kept_ms) // DAY_MS
        if first > self._day:
            counted = (await self._store.usage.look(self._pool, ())).counted
            old = range(max(counted.days.start, first - MOST_DROPPED), first)
            await self._store.usage.drop(self._pool, max(first, counted.first), old)
            self._day = first

    async def _begin(self, upto: str) -> Counting:
        counted = (await self._store.usage.look(self._pool, ())).counted
        if entry_key(counted.upto) > entry_key(upto):  # the log lost what was counted of it
            await self._store.usage.forget_all(self._pool, counted.days)
            counted = Counted()
        self._seen, self._since = counted, {}
        if counted.upto == START:
            oldest = await self._archive.oldest(self._pool)
            counted, self._since = Counted(oldest), {"since": oldest}
        return Counting(self._store, self._archive, self._pool, counted)

    async def _count(self, counting: Counting, token: str, sealed: Sequence[Entry | Poison]) -> None:
        await counting.take(sealed)
        fold = counting.fold
        reply = await self._store.usage.tally(
            self._pool, token, self._seen, fold.position, write_flights(fold.flights), fold.take_rows(), self._since
        )
        if reply.word is not Word.APPLIED:
            raise Unavailable("what tenants used", "it is counted by somebody else")
        self._seen, self._since = self._seen._replace(upto=fold.position), {}

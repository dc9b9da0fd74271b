"""Following a log from a position on: in the archive as long as the log was trimmed past it, then in the log itself.

Promises: as `contracts.store.log.LogReader`, and no hole where the log was trimmed under a slow reader. Raises `Gone`
when what follows is nowhere, StoreUnavailable and Unavailable for what may pass.
"""

from collections.abc import Sequence

from contracts.archive.reading import READ_AHEAD, Archive
from contracts.positions import START
from contracts.store import Store
from contracts.store.log import Poison
from contracts.store.records import RecordReader, may_lack
from contracts.wire import Entry


class ArchiveTail:
    """One reader; `position` is that of the last entry it gave. At START it begins with the oldest entry there is."""

    def __init__(self, archive: Archive, store: Store, pool: str, position: str) -> None:
        self._archive, self._pool = archive, pool
        self._log = RecordReader(store.channel())
        self._ahead: Sequence[Entry | Poison] = []  # of the archive, read and not given yet
        self._position = position

    @property
    def position(self) -> str:
        """Where it is; setting it goes on from there."""
        return self._position

    @position.setter
    def position(self, position: str) -> None:
        self._position, self._ahead = position, []

    @property
    def opened(self) -> int:
        """How many connections to the log this took so far."""
        return self._log.opened

    async def read(self, count: int = 200, block_ms: int | None = None) -> list[Entry | Poison]:
        """Return the next entries, waiting up to `block_ms` for the first."""
        if not self._ahead:
            found = await self._log.after(self._pool, self._position, count, block_ms)
            self._ahead = [record.entry() for record in found.records]
            if may_lack(self._position, found.trimmed):
                self._ahead = await self._archived(count)
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        if taken:
            self._position = taken[-1].position
        return list(taken)

    async def _archived(self, count: int) -> Sequence[Entry | Poison]:
        after = await self._archive.oldest(self._pool) if self._position == START else self._position
        return await self._archive.next(self._pool, after, max(count, READ_AHEAD))

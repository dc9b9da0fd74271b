"""Following a log from a position on: in the archive as long as the log was trimmed past it, then in the log itself.

Promises: as `contracts.store.log.LogReader`, and no hole where the log was trimmed under a slow reader. Raises `Gone`
when what follows is nowhere, StoreUnavailable and Unavailable for what may pass.
"""

from contracts.archive.reading import Archive
from contracts.store import Store
from contracts.store.log import Poison
from contracts.store.records import Record, RecordReader, may_lack
from contracts.wire import Entry


class ArchiveTail:
    """One reader; `position` is that of the last entry it gave."""

    def __init__(self, archive: Archive, store: Store, pool: str, position: str) -> None:
        self._archive, self._pool = archive, pool
        self._log = RecordReader(store.channel())
        self._ahead: list[Record] = []  # of the archive, read and not given yet
        self.position = position

    async def read(self, count: int = 200, block_ms: int | None = None) -> list[Entry | Poison]:
        """Return the next entries, waiting up to `block_ms` for the first."""
        taken = self._ahead[:count] or await self._live(count, block_ms)
        if taken is None:
            self._ahead = list(await self._archive.next(self._pool, self.position, count))
            taken = self._ahead[:count]
        self._ahead = self._ahead[len(taken) :]
        if taken:
            self.position = taken[-1].position
        return [record.entry() for record in taken]

    async def _live(self, count: int, block_ms: int | None) -> list[Record] | None:
        """Return the next entries of the log; None when some that came before them may be gone from it."""
        found = await self._log.after(self._pool, self.position, count, block_ms)
        return None if may_lack(self.position, found.trimmed) else found.records

"""A reader of a log that notices when the log it comes back to is another one.

Promises: what is read over a new connection is given only after what was read last was looked at again. A store that
lost its last second, or another one behind the same address, would go on at positions that look right.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from contracts.errors import HeadraceError, Unavailable
from contracts.positions import before, entry_key
from contracts.store.log import Poison
from contracts.wire import Entry


class Forked(HeadraceError):
    """The log does not say what was read of it before: whatever was made of it may not be so."""

    code = "log_forked"

    def __init__(self, position: str) -> None:
        super().__init__(f"the log is another one: it does not say at {position} what was read there")
        self.position = position


class LogTail(Protocol):
    """Follows a log; `position` is that of the last entry it gave, and may be set."""

    @property
    def position(self) -> str: ...
    @position.setter
    def position(self, position: str) -> None: ...
    @property
    def opened(self) -> int:
        """How many connections to the log it took so far."""

    async def read(self, count: int = 200, block_ms: int | None = None) -> list[Entry | Poison]:
        """Return the next entries, waiting up to `block_ms` for the first. Raises Unavailable."""


class AnchoredTail:
    """Wraps a reader; `end` asks for the position of the newest entry ever appended."""

    def __init__(self, reader: LogTail, end: Callable[[], Awaitable[str]]) -> None:
        self._reader, self._end = reader, end
        self._last: Entry | Poison | None = None
        self._opened: int | None = None  # when the log was known to be the same

    def begin(self, position: str, last: Entry | Poison | None = None) -> None:
        """Go on behind a position, at which `last` was read, if anything was."""
        self._reader.position, self._last = position, last

    async def read(self, count: int = 200, block_ms: int | None = None) -> list[Entry | Poison]:
        """Return the next entries, waiting up to `block_ms` for the first. Raises Forked, and as the reader."""
        place, last = self._reader.position, self._last  # of this call: somebody may begin elsewhere meanwhile
        entries = await self._reader.read(count, block_ms)
        if self._opened not in (None, opened := self._reader.opened):
            await self._look(place, last, self._reader.position)
        self._opened = opened
        if entries:
            self._last = entries[-1]
        return entries

    async def _look(self, place: str, last: Entry | Poison | None, after: str) -> None:
        """Raise Forked unless the log says at `place` what was read there; else go on behind `after`."""
        upto = place
        try:
            if last is None:
                is_same = entry_key(await self._end()) >= entry_key(place)
            else:
                self._reader.position = before(place)
                is_same = await self._reader.read(1) == [last]
            upto = after
        except Unavailable:
            raise
        except HeadraceError:  # neither the log nor its archive says anything of it any more
            is_same = False
        finally:
            self._reader.position = upto
        if not is_same:
            raise Forked(place)

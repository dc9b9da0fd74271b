"""What an attempt prints, shown while it runs: the growing log file, piece by piece, in the pool's live stream.

Promises: costs a timer until something is printed, and nothing of it delays the attempt or outlives it; pieces come in
order and without a hole, at most PIECE_BYTES in each GAP_S; a store that is away is tried again with the same piece.
Does not promise that the last pieces are shown: the whole log is stored when the attempt ends.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from contracts.errors import HeadraceError
from contracts.store.live import PIECE_BYTES, STORED, whole_characters

GAP_S = 0.25
log = structlog.get_logger()


class LiveLog:
    """`publish` shows bytes from an offset on."""

    def __init__(self, publish: Callable[[int, bytes], Awaitable[None]]) -> None:
        self._publish = publish
        self._path: Path | None = None
        self._shown_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, path: Path) -> None:
        """Begin to show this file, which need not be there yet."""
        self._path = path
        self._timer = asyncio.get_running_loop().call_later(GAP_S, self._look)

    async def stop(self) -> None:
        """Show no more; a piece under way is let go."""
        self._path = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def say_stored(self) -> None:
        """Tell who follows that the whole log is among the stored files, if anything of it was shown."""
        if self._shown_bytes:
            await self._show(STORED, b"")

    def _look(self) -> None:
        path = self._path
        if path is None:
            return
        self._timer = asyncio.get_running_loop().call_later(GAP_S, self._look)
        if self._task is None or self._task.done():
            piece = _read(path, self._shown_bytes)
            if piece:
                self._task = asyncio.create_task(self._show_next(piece))

    async def _show_next(self, piece: bytes) -> None:
        if await self._show(self._shown_bytes, piece):
            self._shown_bytes += len(piece)

    async def _show(self, offset: int, piece: bytes) -> bool:
        try:
            await self._publish(offset, piece)
        except HeadraceError as error:
            log.info("log_not_shown", detail=str(error))
            return False
        return True


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return whole_characters(os.pread(file.fileno(), PIECE_BYTES, offset))
    except OSError:  # nothing was printed yet
        return b""

"""What running jobs print, for those who follow: one reader of a pool's live stream serves all of them.

Promises: a follower has every piece that arrives once it follows; one that does not read loses its oldest, which shows
as a hole. The reader runs only while somebody follows.
"""

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from contracts.errors import StoreUnavailable
from contracts.positions import START
from contracts.store import Store
from contracts.store.live import Piece, as_piece
from contracts.store.log import StreamReader, pause

MAX_FOLLOWING = 500
MOST_WAITING = 256
BLOCK_MS = 500


class Feed:
    """The pieces of one job for one follower."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque(maxlen=MOST_WAITING)
        self._changed = asyncio.Event()
        self.is_over = False  # the process ends

    def put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    def end(self) -> None:
        self.is_over = True
        self._changed.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until there is a piece or another reason to look around; False when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take(self) -> list[Piece]:
        """Return what has arrived."""
        taken = list(self._pieces)
        self._pieces.clear()
        return taken


class LogTails:
    """Who follows which job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feeds: dict[str, dict[str, set[Feed]]] = {}
        self._readers: dict[str, StreamReader] = {}  # each goes on where it was: a piece twice is told by its offset
        self._tails: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    @property
    def has_room(self) -> bool:
        return sum(len(feeds) for jobs in self._feeds.values() for feeds in jobs.values()) < MAX_FOLLOWING

    @contextmanager
    def follow(self, pool: str, job_id: str) -> Iterator[Feed]:
        """Get what the job prints from now on."""
        feed = Feed()
        jobs = self._feeds.setdefault(pool, {})
        jobs.setdefault(job_id, set()).add(feed)
        tail = self._tails.get(pool)
        if tail is None or tail.done():
            self._tails[pool] = asyncio.create_task(self._tail(pool, jobs))
        try:
            yield feed
        finally:
            jobs[job_id].discard(feed)
            if not jobs[job_id]:
                del jobs[job_id]

    async def aclose(self) -> None:
        """End all feeds and stop the readers."""
        self._stop.set()
        for jobs in self._feeds.values():
            for feeds in jobs.values():
                for feed in feeds:
                    feed.end()
        await asyncio.gather(*self._tails.values(), return_exceptions=True)

    async def _tail(self, pool: str, jobs: dict[str, set[Feed]]) -> None:
        failures = 0
        reader = self._readers.get(pool)
        if reader is None:
            reader = self._readers[pool] = self._store.live.tail(pool, START)
        while jobs and not self._stop.is_set():
            try:
                messages = await reader.messages(count=100, block_ms=BLOCK_MS)
            except StoreUnavailable:
                failures += 1
                await pause(failures, self._stop, random.random())
                continue
            failures = 0
            for message in messages:
                piece = as_piece(message)
                for feed in jobs.get(piece.job_id, ()):
                    feed.put(piece)

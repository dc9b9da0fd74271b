"""The log of one pool, read once for all of this process who listen to it.

Promises: whoever follows and then reads the state of things misses nothing that is appended after what it read, and is
told when the log has a hole for it (`is_lost`): what follows was trimmed, or the store came back with another log. The
reader runs only while somebody listens, and costs the store the same for one listener and for thousands.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import structlog

from contracts.archive.reading import Gone
from contracts.errors import HeadraceError
from contracts.store import Store
from contracts.store.anchored import AnchoredTail, Forked
from contracts.store.log import Poison, pause
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.ingest.live.records import Records
from services.ingest.live.subscription import MOST_WAITING, Subscription

log: Logger = structlog.get_logger(service="ingest")

BLOCK_MS = 500
AT_ONCE = 500

Listener = Subscription[Entry]


class Feed:
    """One pool. `is_over` listeners are told once `stop` is set."""

    def __init__(self, store: Store, pool: str, stop: asyncio.Event) -> None:
        self._store, self._pool, self._stop = store, pool, stop
        self._of_job: dict[str, set[Listener]] = {}
        self._of_all: set[Listener] = set()
        self.records = Records()
        self._begun = asyncio.Event()
        self._reader: AnchoredTail | None = None
        self._task: asyncio.Task[None] | None = None
        self._read_s = monotonic()

    @property
    def is_followed(self) -> bool:
        """Whether anybody listens."""
        return bool(self._of_job or self._of_all)

    def age_s(self) -> float:
        """How long ago the log was read; 0 while nobody listens. Nothing to read is read within BLOCK_MS, too."""
        return monotonic() - self._read_s if self.is_followed else 0.0

    @contextmanager
    def follow(self, job_id: str) -> Iterator[Listener]:
        """Listen to one job."""
        listener = Listener(MOST_WAITING)
        self._of_job.setdefault(job_id, set()).add(listener)
        self._start(listener)
        try:
            yield listener
        finally:
            self._of_job[job_id].discard(listener)
            if not self._of_job[job_id]:
                del self._of_job[job_id]

    @contextmanager
    def follow_all(self, most: int) -> Iterator[Listener]:
        """Listen to everything; at most so many entries wait."""
        listener = Listener(most)
        self._of_all.add(listener)
        self._start(listener)
        try:
            yield listener
        finally:
            self._of_all.discard(listener)

    async def begun(self) -> None:
        """Wait until the reader knows where it begins: whatever is read from now on, it is not behind.

        Returns at once when the process ends: then listeners are over.
        """
        await self._begun.wait()

    async def aclose(self) -> None:
        """End all listeners and the reader, once `stop` is set."""
        for listener in self._listeners():
            listener.end()
        self._begun.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _start(self, listener: Listener) -> None:
        listener.is_over = self._stop.is_set()
        if listener.is_over:
            self._begun.set()
        elif self._task is None or self._task.done():
            self._begun.clear()
            self._read_s = monotonic()
            self._task = asyncio.create_task(self._read())

    def _listeners(self) -> list[Listener]:
        return [*self._of_all, *(each for group in self._of_job.values() for each in group)]

    async def _read(self) -> None:
        failures = 0
        while self.is_followed and not self._stop.is_set():
            try:
                entries = await self._next()
            except (Gone, Forked):
                self._lose()
                continue
            except HeadraceError:
                failures += 1
                await pause(failures, self._stop, random.random())
                continue
            except Exception:  # a reader that ended would leave all listeners with heartbeats and nothing else
                log.exception("stream_reader_failed", pool=self._pool)
                self._lose()
                failures += 1
                await pause(failures, self._stop, random.random())
                continue
            failures, self._read_s = 0, monotonic()
            for entry in entries:
                self._tell(entry)

    async def _next(self) -> list[Entry | Poison]:
        """Return what comes next. Raises Gone, Forked when that is not what follows, and what may pass."""
        if self._reader is None:
            self._reader = self._store.anchored(self._pool, "")
            self._begun.clear()
        if not self._begun.is_set():
            self._reader.begin(await self._store.end_of_log(self._pool))
            self._begun.set()
        return await self._reader.read(AT_ONCE, BLOCK_MS)

    def _lose(self) -> None:
        if self._stop.is_set():
            return
        self.records = Records()  # another log may use the same positions
        self._begun.clear()
        for listener in self._listeners():
            listener.lose()

    def _tell(self, entry: Entry | Poison) -> None:
        if isinstance(entry, Poison):
            return  # no reader of the log can tell more of it
        for listener in self._of_job.get(entry.subject, ()):
            listener.put(entry)
        for listener in self._of_all:
            listener.put(entry)

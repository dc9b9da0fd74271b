"""All feeds of this process, and how many streams each key may have here."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from contracts.archive.reading import Archive
from contracts.envelope import Origin
from services.ingest.context import Context
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.live.feed import Feed
from services.ingest.live.tenant_feed import TenantFeed
from services.ingest.live.viewer import Viewer
from services.ingest.stream_figures import StreamFigures

LOOK_S = 1.0
RETRY_AFTER_S = 10.0  # nobody knows when a stream ends


class Hub:
    """One for each process."""

    def __init__(self, context: Context, archive: Archive) -> None:
        self._context, self.archive = context, archive
        self._feeds: dict[str, Feed] = {}
        self._of_tenants: dict[str, TenantFeed] = {}
        self._open: Counter[str] = Counter()
        self._stop = asyncio.Event()
        self._connected: dict[asyncio.Task[Any], Callable[[], bool]] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def open_count(self) -> int:
        """How many streams are open."""
        return self._open.total()

    @property
    def is_over(self) -> bool:
        """Whether the process ends."""
        return self._stop.is_set()

    def feed(self, pool: str) -> Feed:
        """Return what reads a pool's log."""
        if pool not in self._feeds:
            feed = self._feeds[pool] = Feed(self._context.store, pool, self._stop)
            self.figures.readers[pool] = feed.age_s
        return self._feeds[pool]

    def of_tenants(self, pool: str) -> TenantFeed:
        """Return what tells tenants of their jobs in a pool."""
        if pool not in self._of_tenants:
            self._of_tenants[pool] = TenantFeed(self.feed(pool), self.viewer(pool), pool)
        return self._of_tenants[pool]

    def viewer(self, pool: str) -> Viewer:
        """Return what makes the public record of a pool's entries."""
        return Viewer(self._context.store, self.archive, pool, partial(self._origin, pool))

    @property
    def figures(self) -> StreamFigures:
        """What is counted of streams."""
        return self._context.metrics.streams

    @contextmanager
    def stream(self, key_id: str, kind: str) -> Iterator[None]:
        """Count a stream for as long as it is open. Raises Problem `quota_exceeded`."""
        most = self._context.settings.ingest.key_streams
        if self._open[key_id] >= most:
            detail = f"The key has {most} streams here already; end one"
            raise Problem("quota_exceeded", detail, retry_after_s=RETRY_AFTER_S, extensions={POLICIES: ["streams"]})
        self._open[key_id] += 1
        try:
            with self.figures.client(kind):
                yield
        finally:
            self._open[key_id] -= 1
            self._open += Counter()  # drops who has none

    @contextmanager
    def while_connected(self, is_lost: Callable[[], bool]) -> Iterator[None]:
        """End what this task does once its connection is lost, at a look: the server tells nobody of that."""
        task = asyncio.current_task()
        assert task is not None
        self._connected[task] = is_lost
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            del self._connected[task]

    async def _look(self) -> None:
        while self._connected and not self.is_over:
            for task in [task for task, is_lost in self._connected.items() if is_lost()]:
                task.cancel()
            await asyncio.sleep(LOOK_S)

    async def aclose(self) -> None:
        """Tell every listener that the process ends, and stop the readers."""
        self._stop.set()
        if self._looking is not None:
            self._looking.cancel()
        await asyncio.gather(*(feed.aclose() for feed in self._feeds.values()))
        await asyncio.gather(*(feed.aclose() for feed in self._of_tenants.values()))

    def _origin(self, pool: str) -> Origin:
        place = self._context.place(self._context.pool(pool))
        return Origin(place.code, place.epoch, place.public_url)

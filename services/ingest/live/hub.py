"""All feeds of this process, and how many streams each key may have here."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from contracts.store import Store
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.live.feed import Feed

RETRY_AFTER_S = 10.0  # nobody knows when a stream ends


class Hub:
    """One for each process. `key_streams`: how many streams one key may have."""

    def __init__(self, store: Store, key_streams: int) -> None:
        self._store, self._most = store, key_streams
        self._feeds: dict[str, Feed] = {}
        self._open: Counter[str] = Counter()
        self._stop = asyncio.Event()

    @property
    def open_count(self) -> int:
        """How many streams are open."""
        return self._open.total()

    def feed(self, pool: str) -> Feed:
        """Return what reads a pool's log."""
        if pool not in self._feeds:
            self._feeds[pool] = Feed(self._store, pool, self._stop)
        return self._feeds[pool]

    @contextmanager
    def stream(self, key_id: str) -> Iterator[None]:
        """Count a stream for as long as it is open. Raises Problem `quota_exceeded`."""
        if self._open[key_id] >= self._most:
            detail = f"The key has {self._most} streams here already; end one"
            raise Problem("quota_exceeded", detail, retry_after_s=RETRY_AFTER_S, extensions={POLICIES: ["streams"]})
        self._open[key_id] += 1
        try:
            yield
        finally:
            self._open[key_id] -= 1
            self._open += Counter()  # drops who has none

    async def aclose(self) -> None:
        """Tell every listener that the process ends, and stop the readers."""
        self._stop.set()
        await asyncio.gather(*(feed.aclose() for feed in self._feeds.values()))

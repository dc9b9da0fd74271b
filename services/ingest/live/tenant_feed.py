"""What happens in one pool, as tenants and operators are told of it: made once from the pool's feed for all who listen.

Promises: as the feed; while the store cannot say whose a job is, nothing is told and nothing is lost, up to MOST_AHEAD
entries, beyond which listeners are told of a hole; so they are of an entry that cannot be told in TRIES_MAX tries, and
what follows it is told.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import structlog

from contracts.errors import Unavailable
from contracts.store.log import pause
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.ingest.live.feed import Feed, Listener
from services.ingest.live.subscription import Subscription
from services.ingest.live.viewer import Viewed, Viewer

log: Logger = structlog.get_logger(service="ingest")

MOST_AHEAD = 20_000
LOOK_S = 1.0
TRIES_MAX = 3

TenantListener = Subscription[Viewed]


class TenantFeed:
    """One pool."""

    def __init__(self, feed: Feed, viewer: Viewer, pool: str) -> None:
        self._feed, self._viewer, self.pool = feed, viewer, pool
        self._of_tenant: dict[str, set[TenantListener]] = {}
        self._of_all: set[TenantListener] = set()
        self._task: asyncio.Task[None] | None = None
        self._never = asyncio.Event()

    @contextmanager
    def follow(self, tenant_id: str, listener: TenantListener) -> Iterator[None]:
        """Tell a listener of a tenant's jobs here, too; it may listen to several pools."""
        self._of_tenant.setdefault(tenant_id, set()).add(listener)
        self._start()
        try:
            yield
        finally:
            self._of_tenant[tenant_id].discard(listener)
            if not self._of_tenant[tenant_id]:
                del self._of_tenant[tenant_id]

    @contextmanager
    def follow_all(self, listener: TenantListener) -> Iterator[None]:
        """Tell a listener of everything here, also of what is no tenant's."""
        self._of_all.add(listener)
        self._start()
        try:
            yield
        finally:
            self._of_all.discard(listener)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            stack = ExitStack()
            self._task = asyncio.create_task(self._run(stack, stack.enter_context(self._feed.follow_all(MOST_AHEAD))))

    async def begun(self) -> None:
        """Wait until the reader knows where it begins."""
        await self._feed.begun()

    async def aclose(self) -> None:
        """Wait until the feed's end was passed on."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, stack: ExitStack, all_of_it: Listener) -> None:
        with stack:
            while (self._of_tenant or self._of_all) and not all_of_it.is_over:
                if not await all_of_it.wait(LOOK_S):
                    continue
                entries = all_of_it.take()
                if all_of_it.is_lost or all_of_it.is_slow:
                    all_of_it.begin_again()
                    for listener in self._listeners():
                        listener.lose()
                    continue
                await self._tell(entries, all_of_it)
            for listener in self._listeners():
                listener.end()

    async def _tell(self, entries: Sequence[Entry], all_of_it: Listener) -> None:
        for viewed in await self._view(entries, all_of_it):
            for listener in (*self._of_tenant.get(viewed.tenant_id, ()), *self._of_all):
                listener.put(viewed)

    async def _view(self, entries: Sequence[Entry], all_of_it: Listener) -> list[Viewed]:
        """Return what is told of entries; of those that cannot be told for good, that there is a hole."""
        failures, tries = 0, 0
        while not all_of_it.is_over:
            try:
                return await self._viewer.show(entries, self._is_wanted, with_others=bool(self._of_all))
            except Unavailable:
                failures += 1
                await pause(failures, self._never, random.random())
            except Exception:  # one event that nobody foresaw must not stand before all others
                tries += 1
                if len(entries) > 1:
                    return [viewed for entry in entries for viewed in await self._view([entry], all_of_it)]
                if tries >= TRIES_MAX:
                    log.exception("stream_entry_not_told", pool=self.pool, position=entries[0].position)
                    for listener in self._listeners():
                        listener.lose()
                    return []
        return []

    def _is_wanted(self, tenant_id: str) -> bool:
        return bool(self._of_all) or tenant_id in self._of_tenant

    def _listeners(self) -> set[TenantListener]:
        return self._of_all.union(*self._of_tenant.values())

"""The function library on a real server and a plain model of it, side by side; replies are lost on the way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from contracts.errors import StoreUnavailable
from contracts.store import Store, keys
from tests.servers import Server
from tests.store.comparison import POOL, compare_counters, compare_jobs, compare_whole_log, compare_workers
from tests.store.job_model import Model
from tests.store.lossy import LossyProxy


@dataclass(frozen=True)
class Chance:
    """What Hypothesis draws for one step."""

    i: int = 0
    j: int = 0
    stale: int = 0  # by how many events the writer's knowledge is old
    lost: int = 0  # replies that do not arrive; the client repeats once by itself, then its caller has to
    what: str = ""  # a worker writes
    step: int = 1  # of k: the next one, the last one again, an older one, one that comes too early
    decisions: Sequence[tuple[str, int, int, int]] = ()  # of a turn


class SideBySide:
    """Both, and the way to call the store."""

    store: Store

    def __init__(self, server: Server) -> None:
        self.model = Model()
        self.direct = redis.Redis.from_url(server.url, decode_responses=True)
        self.direct.flushall()
        self._loop = asyncio.Runner()
        self._proxy = LossyProxy(server.socket)

    def open(self) -> None:
        self._loop.run(self._open())

    async def _open(self) -> None:
        await self._proxy.open()
        self.store = Store(self._proxy.url, retries=1)
        await self.store.directory.open()
        await self.store.open_pool(POOL)

    def call(self, lost: int, make: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call whose first `lost` replies do not arrive; repeat it unchanged, as its caller has to."""

        async def until_answered() -> Any:
            self._proxy.drop = lost
            try:
                return await make()
            except StoreUnavailable:
                self._proxy.drop = 0
                return await make()
            finally:
                self._proxy.drop = 0

        return self._loop.run(until_answered())

    def last_position(self, job_id: str) -> str:
        return str(self.direct.hget(keys.job(POOL, job_id), "p"))

    def compare(self) -> None:
        """Raise AssertionError unless the store is what the model says."""
        if self.model.minted:
            self._loop.run(compare_jobs(self.store, self.model))
            compare_counters(self.direct, self.model)
            compare_workers(self.direct, [*self.model.workers.values()])

    def close(self) -> None:
        """Look at the whole log once more, and end."""
        try:
            compare_whole_log(self.direct, self.model)
        finally:
            self._loop.run(self._close())
            self._loop.close()
            self.direct.close()

    async def _close(self) -> None:
        await self.store.aclose()
        await self._proxy.close()

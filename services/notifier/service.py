"""The notifier of one process: a planner for each pool, one courier for all of them.

Promises: serves every pool that the configuration knows, also those that come later; starts before the store does
and survives its outages; when told to stop it reads nothing more, lets attempts under way end within a grace and
hands the rest back.
"""

import asyncio
import random
import secrets
from dataclasses import dataclass

from contracts.errors import StoreUnavailable
from contracts.store import Store
from contracts.store.log import pause
from contracts.telemetry import Logger
from services.notifier.courier import Courier
from services.notifier.payload import Links
from services.notifier.planner import BLOCK_MS, Planner

POOLS_EVERY_S = 1.0
URLS = "urls"  # secret shared with ingest, which checks the links; whoever comes first makes it


@dataclass(frozen=True, slots=True)
class Identity:
    """What a planner is called in the group, and where links in its webhooks lead."""

    consumer: str
    public_url: str


class Notifier:
    """Runs until told to stop."""

    def __init__(
        self, store: Store, courier: Courier, identity: Identity, log: Logger, *, block_ms: int = BLOCK_MS
    ) -> None:
        self._store = store
        self._courier = courier
        self._identity = identity
        self._log = log
        self._block_ms = block_ms
        self._served: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve all pools until `stop`. Raises ConfigError when the store's layout is newer than this version."""
        async with asyncio.TaskGroup() as tasks:
            if await self._open(stop):
                tasks.create_task(self._store.directory.follow(stop))
            while not stop.is_set():
                await self._serve_new_pools(tasks, stop)
                await _wait(stop, POOLS_EVERY_S)
            self._courier.wake()
        await self._courier.finish()

    async def _open(self, stop: asyncio.Event) -> bool:
        failures = 0
        while not stop.is_set():
            try:
                await self._store.directory.open()
                return True
            except StoreUnavailable:
                await pause(failures, stop, random.random())
                failures += 1
        return False

    async def _serve_new_pools(self, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        for pool in sorted(self._store.directory.configuration.pools.keys() - self._served):
            try:
                meta = await self._store.open_pool(pool)
                secret = await self._store.directory.keep_secret(URLS, secrets.token_hex(32))
            except StoreUnavailable:
                return  # asked again in a moment
            planner = Planner(
                self._store,
                meta,
                consumer=self._identity.consumer,
                links=Links(self._identity.public_url, secret.encode()),
                planned=self._courier.wake,
                log=self._log,
                block_ms=self._block_ms,
            )
            tasks.create_task(planner.run(stop))
            tasks.create_task(self._courier.run(pool, stop))
            self._served.add(pool)
            self._log.info("pool_served", pool=pool, consumer=self._identity.consumer)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return

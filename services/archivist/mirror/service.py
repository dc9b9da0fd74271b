"""The mirror of all pools, as a Faust app: an agent for each pool, and a source that feeds it.

Promises: starts before the store and the broker do, and survives their outages; when the set of pools changes it ends
in order and says that it wants to be started again; when told to stop it reads nothing more and says what the broker
has acknowledged by then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from contracts.errors import StoreUnavailable
from contracts.store import Store
from contracts.store.log import pause
from contracts.telemetry import Logger
from contracts.waiting import wait

if TYPE_CHECKING:
    from contracts.archive import Archive
    from contracts.kafka.connection import Topic
    from contracts.store.store import PoolMeta
    from services.archivist.mirror.source import MirrorSource

POOLS_EVERY_S = 1.0
STOP_S = 7.0


class Mirror:
    """Runs until told to stop."""

    def __init__(
        self, store: Store, archive: Archive, topic: Topic, public_url: str, log: Logger, *, idempotent: bool = True
    ) -> None:  # fmt: skip
        self._store, self._archive, self._topic, self._public_url = store, archive, topic, public_url
        self._log, self._idempotent = log, idempotent
        self._sources: list[MirrorSource] = []

    async def run(self, stop: asyncio.Event) -> bool:
        """Mirror all pools until `stop` or until there are others; returns whether to start again.

        Raises ConfigError when a pool goes to another topic, or the store's layout is newer than this version.
        """
        # Half a second of computing, most of it while the store is waited for.
        imported = asyncio.create_task(asyncio.to_thread(import_module, "services.archivist.mirror.app"))
        pools = await self._pools(stop)
        app_module: Any = await imported
        if not pools:
            return False
        app, self._sources = app_module.assemble(
            self._store, self._archive, pools, self._topic, self._public_url, self._log, idempotent=self._idempotent
        )
        ending = asyncio.Event()
        following = asyncio.create_task(self._store.directory.follow(ending))
        await app.start()
        self._log.info("pools_mirrored", pools=sorted(pools), topic=self._topic.name)
        try:
            return await self._until_others(app, pools, stop)
        finally:
            ending.set()  # to be cancelled is not enough for who is just connecting
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await app.stop()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _pools(self, stop: asyncio.Event) -> Mapping[str, PoolMeta]:
        """Return all pools, as soon as there are any; {} when told to stop before."""
        failures = 0
        while not stop.is_set():
            try:
                await self._store.directory.open()
                if pools := self._store.directory.configuration.pools:
                    return {pool: await self._store.open_pool(pool) for pool in sorted(pools)}
                await wait(stop, POOLS_EVERY_S)
            except StoreUnavailable:
                await pause(failures, stop, random.random())
                failures += 1
        return {}

    async def _until_others(self, app: Any, pools: Mapping[str, PoolMeta], stop: asyncio.Event) -> bool:
        while not stop.is_set():
            if app.crashed:
                raise app.crash_reason or RuntimeError("the app crashed")
            for fault in (source.fault for source in self._sources if source.fault is not None):
                raise fault
            if self._store.directory.configuration.pools.keys() != pools.keys():
                self._log.info("pools_changed", mirrored=sorted(pools))
                return True
            await wait(stop, POOLS_EVERY_S)
        return False

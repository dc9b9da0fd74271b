"""The notifier of one process: an agent and a sender for each pool.

Promises: starts before the store does and survives its outages; when the set of pools changes, or a log is another one
than was read, it ends in order and says that it wants to be started again; when told to stop it reads nothing more,
plans what it has in hand, lets attempts under way end within a grace and hands the rest back.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast

from contracts.errors import StoreUnavailable
from contracts.ids import SYSTEM_CODE
from contracts.kafka.connection import Topic
from contracts.store import Store, keys
from contracts.store.log import pause
from contracts.telemetry import Logger
from contracts.waiting import wait
from contracts.webhook_keys import KEY_ROOT
from services.notifier.backfilling import Backfiller
from services.notifier.payload import Links
from services.notifier.planner import Planner
from services.notifier.planning.notices import Source
from services.notifier.sending.courier import Courier

if TYPE_CHECKING:
    from contracts.agents.frontier import AgentApp

POOLS_EVERY_S = 1.0
STOP_S = 5.0  # reading and planning end within this, and attempts within the next, also while the store hangs
FINISH_S = 6.5
BLOCK_MS = 1_000  # the longest wait for an event, and so for a stop


@dataclass(frozen=True, slots=True)
class Identity:
    """What this process is called in the groups, and where links in its webhooks lead."""

    consumer: str
    public_url: str


class Notifier:
    """Runs until told to stop."""

    def __init__(
        self,
        store: Store,
        courier: Courier,
        identity: Identity,
        log: Logger,
        *,
        topic: Topic | None = None,
        block_ms: int = BLOCK_MS,
    ) -> None:
        """`topic`: of Kafka, to be read instead of the logs."""
        self._store = store
        self._courier = courier
        self._identity = identity
        self._log = log
        self._topic = topic
        self._block_ms = block_ms
        self._backfillers: dict[str, Backfiller] = {}
        self._operations: dict[str, Planner] = {}  # of the configuration log
        self._epochs: dict[str, int] = {}
        self._is_forked = False

    async def run(self, stop: asyncio.Event) -> bool:
        """Serve all pools until `stop` or until there are others; returns whether to start again.

        Raises ConfigError when the store's layout is newer than this version.
        """
        # Half a second of computing, most of it while the store is waited for.
        imported = asyncio.create_task(asyncio.to_thread(import_module, "services.notifier.projection.app"))
        planners = await self._planners(stop)
        projection = await self._sending_until(imported, planners)
        if not planners:
            return False
        app = self._assemble(projection, planners)
        await app.start()
        self._log.info("pools_served", pools=sorted(planners), consumer=self._identity.consumer)
        try:
            return await self._until_others(app, set(planners), stop)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await app.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_S):
                    await self._courier.finish()

    async def _planners(self, stop: asyncio.Event) -> dict[str, Planner]:
        """Return a planner for each pool, as soon as there are any; {} when told to stop before."""
        failures = 0
        while not stop.is_set():
            try:
                await self._store.directory.open()
                if pools := self._store.directory.configuration.pools:
                    self._operations = {keys.SYSTEM: await self._planner_of_operations()}
                    return {pool: await self._planner(pool) for pool in sorted(pools)}
                await wait(stop, POOLS_EVERY_S)
            except StoreUnavailable:
                await pause(failures, stop, random.random())
                failures += 1
        return {}

    async def _sending_until(self, imported: asyncio.Task[ModuleType], pools: Iterable[str]) -> ModuleType:
        """Send what is due while Faust is imported: after a restart, that is half a second of everybody's time."""
        until = asyncio.Event()
        sending = [asyncio.create_task(self._courier.run(pool, until)) for pool in pools]
        try:
            return await imported
        finally:
            until.set()
            self._courier.wake()
            await asyncio.gather(*sending)

    async def _planner(self, pool: str) -> Planner:
        meta = await self._store.open_pool(pool)
        self._epochs[pool] = meta.epoch
        links = await self._links()
        source = Source(meta.code, meta.epoch, links)
        self._backfillers[pool] = Backfiller(
            self._store, meta, source, who=self._identity.consumer, planned=self._courier.wake, log=self._log
        )
        return Planner(self._store, meta, links=links, planned=self._courier.wake, log=self._log)

    async def _planner_of_operations(self) -> Planner:
        """Return the planner of the configuration log; the deliveries of its events lie in the oldest pool."""
        pools = self._store.directory.configuration.pools
        home = await self._store.open_pool(min(pools, key=pools.__getitem__))
        log = await self._store.open_configuration_log(SYSTEM_CODE)
        links = await self._links()
        return Planner(self._store, log, links=links, planned=self._courier.wake, log=self._log, home=home)

    async def _links(self) -> Links:
        secret = await self._store.directory.keep_secret(KEY_ROOT, secrets.token_hex(32))
        return Links(self._identity.public_url, secret.encode())

    def _assemble(self, projection: ModuleType, planners: dict[str, Planner]) -> AgentApp:
        feed = projection.from_groups(self._store, self._identity.consumer, self._log, self._block_ms, self._note_fork)
        if self._topic is not None:
            of_pools = projection.from_kafka(self._store, self._topic, self._log, self._block_ms)
            feed = projection.with_configuration(of_pools, feed)
        couriers = [projection.Running(partial(self._courier.run, pool), self._courier.wake) for pool in planners]
        follower = projection.Running(self._store.directory.follow)
        backfillers = [projection.Running(backfiller.run, _nothing) for backfiller in self._backfillers.values()]
        beside = [follower, *backfillers, *couriers]
        return cast("AgentApp", projection.assemble(planners | self._operations, feed, beside))

    async def _until_others(self, app: AgentApp, served: set[str], stop: asyncio.Event) -> bool:
        while not stop.is_set():
            if app.crashed:
                raise app.crash_reason or RuntimeError("the app crashed")
            if self._store.directory.configuration.pools.keys() != served:
                self._log.info("pools_changed", served=sorted(served))
                return True
            if self._is_forked or await self._is_another_epoch():
                self._log.warning("log_changed", epochs=self._epochs)
                return True
            await wait(stop, POOLS_EVERY_S)
        return False

    async def _is_another_epoch(self) -> bool:
        """Whether positions have come to mean another log than the one that webhooks would name."""
        try:
            now = [await self._store.archive.epoch(pool) for pool in self._epochs]
        except StoreUnavailable:
            return False
        return now != list(self._epochs.values())

    def _note_fork(self) -> None:
        self._is_forked = True


def _nothing() -> None:
    """It hears its stop event by itself."""

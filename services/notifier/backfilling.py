"""Sends an endpoint what happened before: reads the log from an instant on and plans what the endpoint wants of it.

Promises: a backfill is one notifier's until its lease runs out, and how far it is is written down with each step, so
one that is killed is continued by another from there; a delivery that exists already is left alone; the rate is
bounded, and no more is planned while much waits for the endpoint.
Does not promise an order, not even to endpoints that ask for it: what happened since may have been sent already. Of the
progress of a job only the newest of each step is sent.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from contracts.backfills import Backfill
from contracts.deliveries import PlannedDelivery
from contracts.errors import Unavailable
from contracts.positions import entry_ms
from contracts.store import Store
from contracts.store.log import pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.waiting import wait
from contracts.wire import Entry
from services.notifier.planning.notices import Source
from services.notifier.planning.past import PastPlanner

LOOK_EVERY_S = 1.0
LEASE_MS = 10_000
STEP = 200  # entries of the log
PER_S = 500  # deliveries planned, at most
STEP_PAUSE_S = 0.005
FULL_PAUSE_S = 0.5
MOST_WAITING = 1_000  # for the endpoint; beyond that the backfill waits, too
LAST_OF_MS = "18446744073709551615"


class Backfiller:
    """The backfills of one pool, one at a time. `who`: this process; `planned`: called when something is to be sent."""

    def __init__(
        self,
        store: Store,
        pool: PoolMeta,
        source: Source,
        *,
        who: str,
        planned: Callable[[], None],
        log: Logger,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._pool = pool.name
        self._past = PastPlanner(store, pool.name, source)
        self._reader = store.tail(pool.name, "0-0")
        self._who = who
        self._planned = planned
        self._log = log.bind(pool=pool.name)
        self._now_ms = now_ms

    async def run(self, stop: asyncio.Event) -> None:
        """Work on what is asked for until `stop`; no outage of the store ends it."""
        failures = 0
        while not stop.is_set():
            try:
                asked = await self._store.backfills.claim(self._pool, self._who, LEASE_MS)
                if asked is not None:
                    await self._store.directory.refresh()
                    await self._work(asked, stop)
                failures = 0
            except Unavailable:
                failures += 1
            except Exception:
                failures += 1
                self._log.exception("backfill_failed")
            await (pause(failures, stop, random.random()) if failures else wait(stop, LOOK_EVERY_S))

    async def _work(self, asked: Backfill, stop: asyncio.Event) -> None:
        while not stop.is_set():
            before, asked = asked, await self._step(asked)
            if not await self._store.backfills.keep(self._pool, self._who, LEASE_MS, asked):
                return  # another goes on with it
            if asked.done_ms:
                self._log.info("backfill_done", id=asked.id, endpoint_id=asked.endpoint_id, planned=asked.planned)
                return
            await wait(stop, _pause_s(before, asked))

    async def _step(self, asked: Backfill) -> Backfill:
        """Do a part; returns how far it is now."""
        endpoint = self._store.directory.configuration.endpoints.get(asked.endpoint_id)
        if endpoint is not None and endpoint.tenant_id != asked.tenant_id:
            endpoint = None
        if asked.job_id:
            deliveries = await self._past.one_event(asked, endpoint)
            return replace(asked, planned=await self._plan(deliveries), done_ms=self._now_ms())
        if endpoint is None:  # deleted meanwhile
            return replace(asked, done_ms=self._now_ms())
        if (await self._store.deliveries.endpoint(self._pool, endpoint.name)).waiting >= MOST_WAITING:
            return asked
        self._reader.position = asked.position or f"{max(0, asked.since_ms - 1)}-{LAST_OF_MS}"
        read = await self._reader.read(STEP)
        within = [entry for entry in read if entry_ms(entry.position) <= asked.until_ms]
        deliveries = await self._past.stretch(endpoint, [entry for entry in within if isinstance(entry, Entry)])
        new = await self._plan(deliveries)
        is_done = len(within) < len(read) or not read
        position = within[-1].position if within else asked.position
        done_ms = self._now_ms() if is_done else 0
        return replace(asked, position=position, planned=asked.planned + new, done_ms=done_ms)

    async def _plan(self, deliveries: Sequence[PlannedDelivery]) -> int:
        if not deliveries:
            return 0
        new = await self._store.deliveries.plan(self._pool, "", deliveries, [])
        if new:
            self._planned()
        return new


def _pause_s(before: Backfill, after: Backfill) -> float:
    if after.position == before.position:
        return FULL_PAUSE_S
    return max(STEP_PAUSE_S, (after.planned - before.planned) / PER_S)

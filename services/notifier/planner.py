"""What the agent does with a batch of a pool's log: store the deliveries that its events call for.

Promises: `plan_all` raises nothing and comes back when each event of the batch is planned or set aside with its
reason; an event is acknowledged in the call that stores its deliveries, so a kill at any moment loses none and
planning twice makes one; what nobody can subscribe to costs no look-up; an endpoint hears of every event that happened
after its making was answered.
Does not promise order between the deliveries of a job, but to endpoints that ask for it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from contracts.agents.batch import Batch
from contracts.errors import Unavailable
from contracts.store import Store, keys
from contracts.store.log import Poison, pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.notifier.payload import Links
from services.notifier.planning.batch_planner import BatchPlanner, Entries
from services.notifier.planning.deliveries import Plan
from services.notifier.planning.notices import Source

GROUP = keys.GROUP_NOTIFIER
TRIES_MAX = 3


class Planner:
    """The agent's body for one pool. `planned` is called whenever new deliveries are due."""

    def __init__(
        self, store: Store, pool: PoolMeta, *, links: Links, planned: Callable[[], None], log: Logger,
        home: PoolMeta | None = None,
    ) -> None:  # fmt: skip
        """`home`: the pool in which deliveries lie, if the log is that of the configuration."""
        self._store = store
        self._pool = pool.name
        self._home = pool if home is None else home
        source = Source(pool.code, pool.epoch, links)
        self._batches = BatchPlanner(store, pool.name, source, log.bind(pool=pool.name), self._home.code)
        self._planned = planned
        self._log = log.bind(pool=pool.name)
        self._never = asyncio.Event()

    async def run(self, batches: AsyncIterator[Batch]) -> None:
        """Plan batch after batch."""
        async for batch in batches:
            await self.plan_all(batch)

    async def plan_all(self, batch: Batch) -> None:
        """Plan a batch; if that fails for another reason than an absence, plan one by one.

        So one event that nobody foresaw stops itself only, and is set aside after three tries.
        """
        try:
            await self._persist(lambda: self.plan(batch.entries, batch.in_group))
        except Exception:
            self._log.exception("batch_failed", first=batch.entries[0].position, entries_count=len(batch.entries))
            for entry in batch.entries:
                await self._plan_alone(entry, batch.in_group)

    async def plan(self, entries: Entries, in_group: bool) -> None:
        """Store the deliveries of a batch and acknowledge it."""
        plan, planned = await self._batches.plan(entries)
        await self._store_all(plan, [entry.position for entry in entries] if in_group else [])
        self._batches.remember(planned)

    async def _store_all(self, plan: Plan, acknowledge: Sequence[str]) -> None:
        if not plan.deliveries and not acknowledge and not plan.poison:
            return
        new = 0
        if self._home.name != self._pool:  # no call may write into two slots: stored first, it can only happen again
            new, plan = (
                await self._store.deliveries.plan(self._home.name, "", plan.deliveries, []),
                Plan([], plan.poison),
            )
        # The one call that stores and acknowledges; whatever happened before it will happen again.
        new += await self._store.deliveries.plan(self._pool, GROUP, plan.deliveries, acknowledge, plan.poison)
        for entry in plan.poison:
            self._log.error("entry_set_aside", position=entry.position, reason=entry.reason)
        if new:
            self._planned()

    async def _plan_alone(self, entry: Entry | Poison, in_group: bool) -> None:
        for tried in range(TRIES_MAX):
            try:
                await self._persist(lambda: self.plan([entry], in_group))
                return
            except Exception as error:
                why = f"cannot be planned: {type(error).__name__}"
                await pause(tried, self._never, random.random())
        await self._set_aside(Poison(entry.position, why), in_group)

    async def _set_aside(self, poison: Poison, in_group: bool) -> None:
        """Try for as long as it takes: an entry that is neither stored nor set aside would be lost."""
        failures = 0
        while True:
            try:
                await self._persist(
                    lambda: self._store_all(Plan(poison=[poison]), [poison.position] if in_group else [])
                )
                return
            except Exception:
                self._log.exception("setting_aside_failed", position=poison.position)
                await pause(failures, self._never, random.random())
                failures += 1

    async def _persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call again while something we depend on is away."""
        failures = 0
        while True:
            try:
                return await call()
            except Unavailable:
                await pause(failures, self._never, random.random())
                failures += 1
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                raise RuntimeError("a call was cancelled, not the agent") from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0

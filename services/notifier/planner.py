"""What the agent does with a batch of a pool's log: store the deliveries that its events call for.

Promises: `plan_all` raises nothing and comes back when each event of the batch is planned or set aside with its
reason; an event is acknowledged in the call that stores its deliveries, so a kill at any moment loses none and
planning twice makes one; what nobody subscribes to costs no look-up.
Does not promise order between the deliveries of a job.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from contracts.deliveries import PlannedDelivery
from contracts.errors import Corrupt, Unavailable
from contracts.ids import BadId, parse_job_id
from contracts.job import JobState
from contracts.job_fold import fold
from contracts.store import Store, keys
from contracts.store.jobs import History
from contracts.store.log import Poison, pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.notifier.payload import Links
from services.notifier.planning import Source, plan, read_body
from services.notifier.projection.batch import Batch

GROUP = keys.GROUP_NOTIFIER
TRIES_MAX = 3

Entries = Sequence[Entry | Poison]


class Planner:
    """The agent's body for one pool. `planned` is called whenever new deliveries are due."""

    def __init__(self, store: Store, pool: PoolMeta, *, links: Links, planned: Callable[[], None], log: Logger) -> None:
        self._store = store
        self._pool = pool.name
        self._source = Source(pool.code, pool.epoch, links)
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
        poison = [entry for entry in entries if isinstance(entry, Poison)]
        deliveries: list[PlannedDelivery] = []
        hooked = [entry for entry in entries if isinstance(entry, Entry) and entry.hooked]
        for outcome in await asyncio.gather(*(self._of_job(entries) for entries in _by_job(hooked))):
            deliveries += outcome[0]
            poison += outcome[1]
        await self._store_all(deliveries, [entry.position for entry in entries] if in_group else [], poison)

    async def _store_all(
        self, deliveries: Sequence[PlannedDelivery], acknowledge: Sequence[str], poison: Sequence[Poison]
    ) -> None:
        if not deliveries and not acknowledge and not poison:
            return
        # The one call that stores and acknowledges; whatever happened before it will happen again.
        group = GROUP if acknowledge else ""
        new = await self._store.deliveries.plan(self._pool, group, deliveries, acknowledge, poison)
        for entry in poison:
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
                await self._persist(lambda: self._store_all([], [poison.position] if in_group else [], [poison]))
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

    async def _of_job(self, entries: list[Entry]) -> tuple[list[PlannedDelivery], list[Poison]]:
        """Plan the hooked events of one job, oldest first."""
        job_id, first = entries[0].subject, entries[0].sequence
        try:
            parse_job_id(job_id)
        except BadId:
            return [], [Poison(entry.position, "hooked, but not of a job") for entry in entries]
        history = await self._store.jobs.history(self._pool, job_id, after=first - 1, with_body=True)
        if history is None:  # erased: whom to tell is gone with it
            self._log.warning("job_forgotten_before_planning", job_id=job_id, events_count=len(entries))
            return [], []
        if any(entry.sequence != history.state.sequence for entry in entries):
            history = await self._store.jobs.history(self._pool, job_id, with_body=True) or history
        planned: list[PlannedDelivery] = []
        poison: list[Poison] = []
        for entry in entries:
            try:
                planned += plan(entry, _state_at(entry, history), read_body(job_id, history.body), self._source)
            except Corrupt as error:
                poison.append(Poison(entry.position, error.reason))
            except Exception as error:  # our own fault would hit the same event each time, and stop all others
                poison.append(Poison(entry.position, f"cannot be planned: {type(error).__name__}"))
        return planned, poison


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _by_job(entries: Iterable[Entry]) -> list[list[Entry]]:
    jobs: dict[str, list[Entry]] = {}
    for entry in entries:
        jobs.setdefault(entry.subject, []).append(entry)
    return [sorted(of_one, key=lambda entry: entry.sequence) for of_one in jobs.values()]


def _state_at(entry: Entry, history: History) -> JobState:
    """Return the job as it was right after the event, however late it is planned."""
    if history.state.sequence == entry.sequence or not history.complete:
        return history.state
    return fold(history.state.id, history.entries[: entry.sequence])

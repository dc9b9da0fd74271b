"""Reads one pool's log as a member of group `notifier` and stores the deliveries its events call for.

Promises: an event is acknowledged in the call that stores its deliveries, so a kill at any moment loses none and
planning twice makes one; what nobody subscribes to costs no look-up; an entry that cannot be read is set aside
with its reason and blocks nothing; no outage of the store ends the loop.
Does not promise order between the deliveries of a job.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from contracts.errors import Corrupt, StoreUnavailable, Unavailable
from contracts.ids import BadId, parse_job_id
from contracts.job import JobState
from contracts.job_fold import fold
from contracts.positions import START
from contracts.store import Store, keys
from contracts.store.deliveries import PlannedDelivery
from contracts.store.jobs import History
from contracts.store.log import Message, Poison, pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.notifier.payload import Links
from services.notifier.planning import Planned, Source, plan, read_body

GROUP = keys.GROUP_NOTIFIER
BATCH = 100
GATHER_S = 0.02
BLOCK_MS = 1000  # the longest wait for an event, and so for a stop
# Planning takes milliseconds: what another consumer has held for seconds is in nobody's hands any more.
ABANDONED_MS = 5_000
TAKE_OVER_EVERY_S = 2.0
TIDY_EVERY_S = 600.0
STRIKES_MAX = 3
CONSUMER_IDLE_MS = 3_600_000


class Planner:
    """One consumer of one pool's log. `planned` is called whenever new deliveries are due."""

    def __init__(
        self,
        store: Store,
        pool: PoolMeta,
        *,
        consumer: str,
        links: Links,
        planned: Callable[[], None],
        log: Logger,
        block_ms: int = BLOCK_MS,
    ) -> None:
        self._store = store
        self._pool = pool.name
        self._source = Source(pool.code, pool.epoch, links)
        self._consumer = consumer
        self._planned = planned
        self._block_ms = block_ms
        self._log = log.bind(pool=pool.name)
        self._reader = store.group(pool.name, GROUP, consumer)
        self._take_over_from = START
        self._take_over_at_s = 0.0
        self._tidy_at_s = 0.0
        self._strikes: Counter[str] = Counter()

    async def run(self, stop: asyncio.Event) -> None:
        """Plan until `stop`, then leave the group if nothing is pending."""
        failures = 0
        while not stop.is_set():
            try:
                await self.run_once()
                failures = await self._fail(failures, stop) if self._strikes else 0
            except Unavailable:
                failures = await self._fail(failures, stop)
            except Exception:
                self._log.exception("planning_failed", consumer=self._consumer)
                failures = await self._fail(failures, stop)
        await self._leave()

    async def run_once(self) -> int:
        """Plan what others abandoned, then one batch of one's own; returns how many events were acknowledged."""
        now_s = asyncio.get_running_loop().time()
        taken: list[Message] = []
        if now_s >= self._take_over_at_s:
            self._take_over_at_s = now_s + TAKE_OVER_EVERY_S
            self._take_over_from, taken = await self._reader.take_over(ABANDONED_MS, self._take_over_from, BATCH)
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + TIDY_EVERY_S
            await self._store.deliveries.leave(self._pool, GROUP, CONSUMER_IDLE_MS)
        messages = taken or await self._read()
        if messages:
            await self._plan_all(messages)
        return len(messages)

    async def _read(self) -> list[Message]:
        """Return the next batch: what comes within a moment of its first event is planned with it.

        A job's first events come milliseconds apart, and each call for one of them would delay the very processes
        that the job waits for.
        """
        messages = await self._reader.read(BATCH, self._block_ms)
        if 0 < len(messages) < BATCH:
            await asyncio.sleep(GATHER_S)
            messages += await self._reader.read(BATCH - len(messages), None)
        return messages

    async def plan(self, messages: Sequence[Message]) -> None:
        """Store the deliveries of a batch and acknowledge it; wherever the batch came from."""
        read = [message.entry() for message in messages]
        poison = [entry for entry in read if isinstance(entry, Poison)]
        deliveries: list[PlannedDelivery] = []
        hooked = [entry for entry in read if isinstance(entry, Entry) and entry.hooked]
        for outcome in await asyncio.gather(*(self._of_job(entries) for entries in _by_job(hooked))):
            deliveries += [PlannedDelivery(planned.id, planned.fields) for planned in outcome[0]]
            poison += outcome[1]
        positions = [message.position for message in messages]
        # The one call that stores and acknowledges; whatever happened before it will happen again.
        new = await self._store.deliveries.plan(self._pool, GROUP, deliveries, positions, poison)
        for entry in poison:
            self._log.error("entry_set_aside", position=entry.position, reason=entry.reason)
        if new:
            self._planned()

    async def _plan_all(self, messages: Sequence[Message]) -> None:
        """Plan a batch; if that fails for another reason than the store's absence, plan one by one.

        So one event that nobody foresaw stops itself only, and is set aside after three tries.
        """
        try:
            await self.plan(messages)
            self._strikes.clear()
            return
        except Unavailable:
            raise
        except Exception:
            self._log.exception("batch_failed", first=messages[0].position, entries_count=len(messages))
        for message in messages:
            await self._plan_alone(message)

    async def _plan_alone(self, message: Message) -> None:
        position = message.position
        try:
            await self.plan([message])
            del self._strikes[position]
        except Unavailable:
            raise
        except Exception as error:
            self._strikes[position] += 1
            if self._strikes[position] < STRIKES_MAX:
                return
            aside = Poison(position, f"cannot be planned: {type(error).__name__}")
            await self._store.deliveries.plan(self._pool, GROUP, [], [position], [aside])
            del self._strikes[position]
            self._log.error("entry_set_aside", position=position, reason=aside.reason)

    async def _fail(self, failures: int, stop: asyncio.Event) -> int:
        # What was read and not acknowledged is ours alone: begin with it again.
        self._reader.own_again()
        await pause(failures, stop, random.random())
        return failures + 1

    async def _of_job(self, entries: list[Entry]) -> tuple[list[Planned], list[Poison]]:
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
        planned: list[Planned] = []
        poison: list[Poison] = []
        for entry in entries:
            try:
                planned += plan(entry, _state_at(entry, history), read_body(job_id, history.body), self._source)
            except Corrupt as error:
                poison.append(Poison(entry.position, error.reason))
            except Exception as error:  # our own fault would hit the same event each time, and stop all others
                poison.append(Poison(entry.position, f"cannot be planned: {type(error).__name__}"))
        return planned, poison

    async def _leave(self) -> None:
        try:
            await self._store.deliveries.leave(self._pool, GROUP, CONSUMER_IDLE_MS, self._consumer)
        except StoreUnavailable:
            self._log.warning("consumer_left_behind", consumer=self._consumer)


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

"""The agent and what surrounds it: when a batch is settled, and what never ends the reading."""

import asyncio
import contextlib
import functools
import json
import os
import sys
from collections.abc import AsyncIterator, Callable

import pytest
import structlog
from redis.exceptions import ResponseError

from contracts.agents.batch import Batch
from contracts.agents.beside import Running, Supervisor
from contracts.errors import Corrupt, StoreFull, StoreUnavailable
from contracts.store import Store, keys
from contracts.store.log import Poison
from contracts.store.store import PoolMeta
from contracts.tenant import Configuration
from contracts.wire import Entry
from services.notifier.payload import Links
from services.notifier.planner import Planner
from services.notifier.projection.app import assemble
from services.notifier.projection.source import ALONE, GROUP, TRIES_MAX, GroupSource
from tests.notifier.hooked import POOL, admit, log_of, pending, until

LOG = structlog.get_logger()


@pytest.mark.parametrize("no_cython", ["", "1"])
async def test_a_batch_is_settled_after_the_body_and_never_by_an_exception_or_a_stop(no_cython: str) -> None:
    """Faust's own stream acknowledges in both cases, and with Cython it asks nobody."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.notifier.settling",
        env=os.environ | {"NO_CYTHON": no_cython}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate()
    assert json.loads(printed) == [
        f"cython {not no_cython}",
        "first runs", "first ended", "first True",
        "cut off False",
        "bad runs", "bad False",
        "after runs", "after ended", "after True",
        "later runs", "later ended", "later True",
    ]  # fmt: skip


class Deliveries:
    """In place of the store's: fails as it is told to, then notes what it is given."""

    def __init__(self, fail: Callable[[list[str]], None]) -> None:
        self.acknowledged: list[str] = []
        self.aside: list[Poison] = []
        self._fail = fail

    async def plan(self, pool, group, deliveries, acknowledge, poison=()) -> int:
        self._fail([position for position in acknowledge if position not in {entry.position for entry in poison}])
        self.acknowledged += acknowledge
        self.aside += poison
        return 0


class NoTenants:
    """In place of the store's directory."""

    async def refresh(self) -> Configuration:
        return Configuration()


class Stub:
    """A store with nothing but deliveries."""

    jobs = None
    directory = NoTenants()

    def __init__(self, fail: Callable[[list[str]], None]) -> None:
        self.deliveries = Deliveries(fail)


@contextlib.asynccontextmanager
async def agent(store) -> AsyncIterator[Callable[[list[str]], asyncio.Future[bool]]]:
    """An agent of one pool; what is yielded hands over a batch and returns a future of how it was settled."""
    planner = Planner(store, PoolMeta(POOL, "aa", 1), links=Links("", b""), planned=lambda: None, log=LOG)
    channels = {}
    app = assemble({POOL: planner}, lambda given: channels.update(given) or [], [])
    await app.start()

    def hand_over(positions: list[str]) -> asyncio.Future[bool]:
        settled = asyncio.get_running_loop().create_future()
        entries = [Entry(position, "job.progress", "job_x", b"{}") for position in positions]
        channels[POOL](Batch(entries, True, settled.set_result))
        return settled

    try:
        yield hand_over
        [actor] = app.agents["plan-default"]._actors
        assert actor.restart_count == 0
        assert not actor.actor_task.done()
    finally:
        await app.stop()


KINDS = [
    ValueError("x"), KeyError("x"), RecursionError(), MemoryError(), ResponseError("WRONGTYPE"), TimeoutError(),
    Corrupt("1-0", "x"), ExceptionGroup("x", [ValueError()]), StopAsyncIteration(), asyncio.CancelledError(),
    asyncio.InvalidStateError(), StoreFull(), StoreUnavailable(),
]  # fmt: skip


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
async def test_no_exception_leaves_the_agent(error: BaseException) -> None:
    """It fails for one event of three, twice: the batch is planned, and the agent was never started anew."""
    left = 2

    def fail(positions: list[str]) -> None:
        nonlocal left
        if "2-0" in positions and left:
            left -= 1
            raise error

    store = Stub(fail)
    async with agent(store) as hand_over, asyncio.timeout(10):
        assert await hand_over(["1-0", "2-0", "3-0"])
        assert await hand_over(["4-0"])
    assert sorted(set(store.deliveries.acknowledged)) == ["1-0", "2-0", "3-0", "4-0"]
    assert store.deliveries.aside == []


async def test_what_fails_three_times_is_set_aside_with_its_reason_and_the_others_are_planned() -> None:
    tries = []

    def fail(positions: list[str]) -> None:
        if "2-0" in positions:
            tries.append(positions)
            raise ZeroDivisionError

    store = Stub(fail)
    async with agent(store) as hand_over, asyncio.timeout(10):
        assert await hand_over(["1-0", "2-0", "3-0"])
    assert tries == [["1-0", "2-0", "3-0"], *[["2-0"]] * TRIES_MAX]
    assert sorted(store.deliveries.acknowledged) == ["1-0", "2-0", "3-0"]
    assert store.deliveries.aside == [Poison("2-0", "cannot be planned: ZeroDivisionError")]


async def test_a_loop_that_crashes_is_started_again_and_stops_in_order() -> None:
    begun: asyncio.Queue[int] = asyncio.Queue()
    ended = []

    async def body(stop: asyncio.Event) -> None:
        begun.put_nowait(len(ended))
        if not ended:
            await asyncio.sleep(0.05)  # until the supervisor looks: it would see a crash before that after 5 s
            ended.append("crashed")
            raise ValueError
        await stop.wait()
        ended.append("stopped")

    supervisor = Supervisor(Running(body, lambda: None))
    await supervisor.start()
    async with asyncio.timeout(4):  # one that is not told of a crash looks each 5 s
        await begun.get()
        await begun.get()
    await supervisor.stop()
    assert ended == ["crashed", "stopped"]


class Consumer:
    """A source whose batches are handled by the test; `die` leaves everything as a kill would."""

    def __init__(self, store: Store, name: str, handle, **options) -> None:
        def hand_over(batch: Batch) -> None:
            self.tasks.append(asyncio.create_task(self._run(batch)))

        self.tasks: list[asyncio.Task[None]] = []
        self._store, self._handle = store, handle
        options = {"block_ms": 50, "abandoned_ms": 100} | options
        self.source = GroupSource(store, POOL, name, hand_over, LOG, **options)

    async def _run(self, batch: Batch) -> None:
        await self._handle(self, batch.entries)
        aside = [entry for entry in batch.entries if isinstance(entry, Poison)]
        await self._store.deliveries.plan(POOL, GROUP, [], [entry.position for entry in batch.entries], aside)
        batch.settle(True)

    async def die(self) -> None:
        for task in (*self.source._futures, *self.tasks):
            task.cancel()
        await asyncio.sleep(0)


async def aside(store: Store) -> dict[str, str]:
    entries = await store.client.xrange(keys.poison(POOL))
    return {fields[b"at"].decode(): fields[b"reason"].decode() for _, fields in entries}


async def test_an_entry_that_ends_its_process_is_tried_alone_and_set_aside_and_takes_nobody_along(store) -> None:
    """Three deaths in company, three alone; what was read with it is planned, however often it was read before."""
    for _ in range(5):
        await admit(store, None)
    positions = [entry.position for entry in await log_of(store)]
    killer, deaths, handled = positions[2], [], []
    died = asyncio.Event()

    async def handle(consumer: Consumer, entries) -> None:
        if any(isinstance(entry, Entry) and entry.position == killer for entry in entries):
            deaths.append(len(entries))
            died.set()
            await asyncio.Event().wait()
        handled.extend(entry.position for entry in entries)

    async with asyncio.timeout(20):
        while not await aside(store):
            died.clear()
            consumer = Consumer(store, f"c{len(deaths)}", handle)
            await consumer.source.start()
            finished = asyncio.create_task(until(lambda: aside(store)))
            await asyncio.wait([asyncio.create_task(died.wait()), finished], return_when=asyncio.FIRST_COMPLETED)
            finished.cancel()
            await consumer.die()
        last = Consumer(store, "last", handle)
        await last.source.start()
        await until(lambda: nothing_pending(store))
        await last.source.stop()
    assert deaths == [5, 5, 5, 1, 1, 1]
    assert sorted(set(handled)) == positions
    assert await aside(store) == {killer: "ended the process that handled it, 3 times"}


async def test_what_a_consumer_takes_over_as_it_begins_counts_as_one_try(store) -> None:
    """It begins with what it owns: entries taken over before that would be read again, and counted twice."""

    async def handle(consumer: Consumer, entries) -> None:
        began.set()
        await asyncio.Event().wait()

    for _ in range(3):
        await admit(store, None)
    for name in ("dead", "next"):
        began = asyncio.Event()
        consumer = Consumer(store, name, handle, abandoned_ms=20)
        await consumer.source.start()
        async with asyncio.timeout(20):
            await began.wait()
            await until(functools.partial(reads_what_is_new, consumer))
        if name == "dead":
            await consumer.die()
            await until(lambda: left_alone(store, 20))
    tries = await store.client.xpending_range(keys.log(POOL), GROUP, "-", "+", 9)
    await consumer.die()
    assert [one["times_delivered"] for one in tries] == [2, 2, 2]


async def reads_what_is_new(consumer: Consumer) -> bool:
    return not consumer.source._reader.reads_own


async def left_alone(store: Store, idle_ms: int) -> bool:
    return len(await store.client.xpending_range(keys.log(POOL), GROUP, "-", "+", 9, idle=idle_ms)) == 3


async def nothing_pending(store: Store) -> bool:
    return await pending(store) == 0


async def test_what_a_body_works_on_for_long_is_taken_over_by_nobody(store) -> None:
    """A batch that takes five times as long as dead consumers' entries are left alone is handled once."""
    job_id = await admit(store, None)
    handled = []
    go_on = asyncio.Event()

    async def slowly(consumer: Consumer, entries) -> None:
        handled.append([entry.subject for entry in entries])
        await go_on.wait()

    one, two = (Consumer(store, name, slowly, abandoned_ms=300) for name in ("one", "two"))
    await one.source.start()
    await until_true(lambda: handled)
    await two.source.start()
    await asyncio.sleep(1.5)  # the time itself is what is tested
    go_on.set()
    await one.source.stop()
    await two.source.stop()
    assert handled == [[job_id]]


async def until_true(condition: Callable[[], object]) -> None:
    async def asked() -> object:
        return condition()

    await until(asked)


async def test_entries_that_were_trimmed_while_they_were_pending_are_set_aside(store) -> None:
    """Some this consumer's own, some of a dead one; what is left of the log is handled."""
    trimmed = {}
    for name in ("me", "dead"):
        await admit(store, None)
        [message] = await store.group(POOL, GROUP, name).read()
        trimmed[message.position] = "trimmed before it was handled"
        await store.client.xdel(keys.log(POOL), message.position)
    kept = await admit(store, None)
    handled = []

    async def handle(consumer: Consumer, entries) -> None:
        handled.extend(entry.subject for entry in entries if isinstance(entry, Entry))

    consumer = Consumer(store, "me", handle)
    await consumer.source.start()
    await until(lambda: nothing_pending(store))
    await until_true(lambda: handled)
    await consumer.source.stop()
    assert handled == [kept]
    assert await aside(store) == trimmed


async def test_lost_connections_and_a_lost_group_end_no_reading(store) -> None:
    """Field case 117: each connection is cut while events come, the group is lost once; each event is handled."""
    handled: set[str] = set()

    async def handle(consumer: Consumer, entries) -> None:
        handled.update(entry.subject for entry in entries)

    consumer = Consumer(store, "me", handle)
    await consumer.source.start()
    jobs = set()
    for number in range(30):
        jobs.add(await admit(store, None))
        if number % 5 == 0:
            await store.client.client_kill_filter(_type="NORMAL", skipme=True)
        if number == 15:
            await store.client.xgroup_destroy(keys.log(POOL), GROUP)
    await until_true(lambda: handled == jobs)
    await consumer.source.stop()
    assert await store.client.xinfo_consumers(keys.log(POOL), GROUP) == []


async def test_a_stop_waits_for_what_is_in_hand(store) -> None:
    """SIGTERM while planning: the batch is stored and acknowledged, and no name stays in the group."""
    await admit(store, None)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(consumer: Consumer, entries) -> None:
        begun.set()
        await go_on.wait()

    consumer = Consumer(store, "me", handle)
    await consumer.source.start()
    await begun.wait()
    stopping = asyncio.create_task(consumer.source.stop())
    await asyncio.sleep(0.2)
    assert not stopping.done()
    go_on.set()
    await stopping
    assert await pending(store) == 0
    assert await store.client.xinfo_consumers(keys.log(POOL), GROUP) == []


def test_tries_in_company_cannot_be_mistaken_for_tries_alone() -> None:
    assert ALONE > 100 * TRIES_MAX


async def test_faust_is_not_imported_before_the_store_is_asked() -> None:
    """Its half second would be added to each start, and to each wrong configuration."""
    code = "import sys, services.notifier.__main__; print({'faust', 'mode'} & sys.modules.keys())"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert printed.decode().strip() == "set()"


async def test_a_group_that_comes_back_to_another_log_says_so_and_hands_over_nothing_more(store) -> None:
    """why.md 18: the log is compared after each new connection; the same one is read on as if nothing had been."""
    handled, forks = [], []

    async def handle(consumer: Consumer, entries) -> None:
        handled.extend(entry.subject for entry in entries)

    consumer = Consumer(store, "one", handle, forked=lambda: forks.append(1))
    await consumer.source.start()
    jobs = [await admit(store, None)]
    await until_true(lambda: handled == jobs)
    await cut_group_readers(store)
    jobs.append(await admit(store, None))
    await until_true(lambda: handled == jobs)
    assert forks == []

    ((last, _),) = await store.client.xrevrange(keys.log(POOL), count=1)
    await store.client.xdel(keys.log(POOL), last)
    await cut_group_readers(store)
    await admit(store, None)
    await until_true(lambda: forks)
    await consumer.source.stop()
    assert handled == jobs


async def cut_group_readers(store: Store) -> None:
    for client in await store.client.client_list():
        if client["cmd"] == "xreadgroup":
            await store.client.client_kill_filter(_id=client["id"])

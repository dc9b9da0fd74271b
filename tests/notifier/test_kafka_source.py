"""The same agent over Kafka: the same deliveries, nothing committed before it is stored, nothing lost."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
import structlog.testing
import structlog.typing

from contracts.agents.batch import Batch
from contracts.archive import Archive
from contracts.artifacts.local import LocalObjects
from contracts.kafka.connection import Cluster, Topic
from contracts.store import Store, keys
from contracts.store.deliveries import PlannedDelivery
from services.archivist.mirror.app import assemble as mirror_of
from services.notifier.payload import Links
from services.notifier.planner import Planner
from services.notifier.projection.app import Feed, assemble, from_groups, from_kafka
from services.notifier.projection.kafka_source import KafkaSource
from tests.notifier.hooked import POOL, admit, append, finish, make_tenant, started, until
from tests.notifier.kafka import Broker, Record, records_of
from tests.notifier.receiver import Receiver, answer
from tests.notifier.test_processes import Process

LOG = structlog.get_logger()
_topics = itertools.count(1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of the test's own: one that has seen members leave lets the next wait for seconds."""
    running = Broker()
    yield running
    running.stop()


@pytest.fixture
async def topic(broker: Broker) -> str:
    """A topic of the test's own."""
    name = f"events-{os.getpid()}-{next(_topics)}"
    await broker.make_topic(name)
    return name


class Planned:
    """A store that also keeps what is planned in it, and waits when it is told to."""

    def __init__(self, store: Store) -> None:
        self.by_id: dict[str, PlannedDelivery] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.asked = asyncio.Event()
        self._plan, self._store = store.deliveries.plan, store

    def __getattr__(self, name: str):
        return self if name == "deliveries" else getattr(self._store, name)

    async def plan(self, pool, group, deliveries, acknowledge, poison=()) -> int:
        self.asked.set()
        await self.open.wait()
        new = await self._plan(pool, group, deliveries, acknowledge, poison)
        self.by_id |= {delivery.id: delivery for delivery in deliveries}
        return new


@contextlib.asynccontextmanager
async def planning(store: Store, feed: Feed) -> AsyncIterator[Planned]:
    """Plan from a feed, and send nothing."""
    planned = Planned(store)
    links = Links("https://gen.example", b"s")
    planner = Planner(planned, await store.open_pool(POOL), links=links, planned=lambda: None, log=LOG)
    app = assemble({POOL: planner}, feed, [])
    await app.start()
    try:
        yield planned
    finally:
        planned.open.set()
        async with asyncio.timeout(30):
            await app.stop()


async def has(planned: Planned, count: int) -> bool:
    return len(planned.by_id) >= count


async def some_jobs(store: Store, count: int) -> None:
    for number in range(count):
        job_id = await admit(store, "https://example.com/hook" if number % 3 else None, metadata={"n": str(number)})
        if number % 2:
            await finish(store, job_id, result={"seed": number})
        else:
            await append(store, job_id, started())


def from_topic(store: Store, broker: Broker, topic: str) -> Feed:
    return from_kafka(store, Topic(Cluster(broker.servers), topic), LOG, 100)


async def test_deliveries_equal_those_of_the_log_itself(store, broker, topic) -> None:
    await some_jobs(store, 20)
    await broker.send(topic, await records_of(store))
    async with planning(store, from_groups(store, "me", LOG, 50)) as of_log:
        await until(lambda: has(of_log, 18))
    async with planning(store, from_topic(store, broker, topic)) as of_topic:
        await until(lambda: has(of_topic, len(of_log.by_id)))
    assert len(of_log.by_id) > 10
    assert of_topic.by_id == of_log.by_id


async def test_an_offset_is_committed_after_what_follows_is_stored(store, broker, topic) -> None:
    await some_jobs(store, 5)
    records = await records_of(store)
    await broker.send(topic, records)
    async with planning(store, from_topic(store, broker, topic)) as planned:
        planned.open.clear()
        await asyncio.wait_for(planned.asked.wait(), 30)
        assert await broker.committed(topic) == {}
        planned.open.set()
        await until(lambda: all_committed(broker, topic, len(records)))


async def is_told(rounds: list[list[str]], count: int) -> bool:
    return sum(len(one) for one in rounds[1:]) >= count


async def all_committed(broker: Broker, topic: str, count: int) -> bool:
    return sum((await broker.committed(topic, 1 if topic == "late" else 2)).values()) >= count


async def test_records_that_cannot_be_read_are_set_aside_and_block_nothing(store, broker, topic) -> None:
    await some_jobs(store, 2)
    good = await records_of(store)
    foreign = good[0].value.replace(b'"position":"aa.', b'"position":"zz.')
    deep = b"[" * 100_000 + b"]" * 100_000
    bad = [
        Record(b"k", None),
        Record(b"k", deep),
        Record(b"k", b"{not json"),
        Record(b"k", b"[]"),
        Record(b"k", foreign),
    ]
    await broker.send(topic, [*bad, *good])
    async with planning(store, from_topic(store, broker, topic)) as planned:
        await until(lambda: all_committed(broker, topic, len(bad) + len(good)))
    assert planned.by_id
    aside = [fields for _, fields in await store.client.xrange(keys.poison(POOL))]
    assert len(aside) == 5
    assert all(fields[b"at"].startswith(topic.encode() + b"/") for fields in aside)
    assert {fields[b"reason"] for fields in aside} >= {b"it is not JSON", b"it is not an object"}


async def test_a_broker_that_comes_late_is_read_and_what_was_not_handled_is_read_again(store, broker) -> None:
    """The first round is given back unhandled, as by an agent that was stopped: none of it is committed."""
    rounds: list[list[str]] = []

    def hand_over(batch: Batch) -> None:
        rounds.append([entry.position for entry in batch.entries])
        batch.settle(len(rounds) > 1)

    await some_jobs(store, 4)
    # Made first: a broker makes a topic that is asked for and not there, with as many partitions as it likes.
    await broker.make_topic("late", partitions=1)
    records = await records_of(store)
    await broker.send("late", records)
    with closed_port() as address, structlog.testing.capture_logs() as told:
        source = KafkaSource(store, Topic(Cluster(address), "late"), {POOL: hand_over}, LOG, block_ms=100)
        await source.start()
        await until(lambda: has_failed(told))
    async with door(address, broker.servers):
        await until(lambda: is_told(rounds, len(records)))
        await source.stop()
    assert await all_committed(broker, "late", len(records))
    again = [position for one in rounds[1:] for position in one]
    assert again[: len(rounds[0])] == rounds[0]
    assert len(again) == len(set(again)) == len(records)


async def has_failed(told: list[structlog.typing.EventDict]) -> bool:
    return any(line["event"] == "reading_failed" for line in told)


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """An address that nobody else gets, and at which nobody listens."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@contextlib.asynccontextmanager
async def door(address: str, servers: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Lets through to the broker, which then names its own address; `tls` is spoken at the door only."""
    host, port = servers.split(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def let_through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async with await asyncio.start_server(let_through, "127.0.0.1", int(address.split(":")[1]), ssl=tls):
        yield


async def test_two_members_share_the_partitions_and_hand_them_over(store, broker, topic) -> None:
    """One joins while records come, one leaves: a rebalance loses nothing."""
    await some_jobs(store, 6)
    first = await records_of(store)
    await broker.send(topic, first)
    async with planning(store, from_topic(store, broker, topic)) as one:
        await until(lambda: has(one, 1))
        async with planning(store, from_topic(store, broker, topic)) as two:
            await some_jobs(store, 20)
            await broker.send(topic, await records_of(store, skip=len(first)))
            total = len(await records_of(store))
            await until(lambda: all_committed(broker, topic, total), timeout_s=60)
    async with planning(store, from_groups(store, "me", LOG, 50)) as of_log:
        await until(lambda: has(of_log, 20))
    assert one.by_id | two.by_id == of_log.by_id


async def test_the_log_is_let_go_as_the_topic_is_planned_and_not_before(store, broker, topic) -> None:
    """Mirror and notifier together: what is copied and not planned is kept, also over a mirror that sends again."""
    await some_jobs(store, 8)
    archive = Archive(store, LocalObjects(Path("/nowhere")))
    place = Topic(Cluster(broker.servers), topic)
    pools = {POOL: await store.open_pool(POOL)}
    mirror, _ = mirror_of(store, archive, pools, place, "https://x.example", LOG, idempotent=False, block_ms=50)
    await mirror.start()
    await until(lambda: is_at_end(store, keys.GROUP_MIRROR))
    async with planning(store, from_topic(store, broker, topic)) as planned:
        planned.open.clear()
        await asyncio.wait_for(planned.asked.wait(), 30)
        assert await store.needed_by(POOL, keys.GROUP_NOTIFIER) == "0-1"
        planned.open.set()
        await until(lambda: is_at_end(store, keys.GROUP_NOTIFIER))
        await some_jobs(store, 2)
        await until(lambda: is_at_end(store, keys.GROUP_NOTIFIER))
    await mirror.stop()
    async with planning(store, from_groups(store, "me", LOG, 50)) as of_log:  # back to the log: nothing is left
        assert (await store.client.xpending(keys.log(POOL), keys.GROUP_NOTIFIER))["pending"] == 0
    assert not of_log.by_id


async def is_at_end(store: Store, group: str) -> bool:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    found = {each["name"].decode(): each["last-delivered-id"].decode() for each in groups}
    return found.get(group) == await store.end_of_log(POOL)


@pytest.mark.slow  # a member that was killed is missed by its group after seconds only
async def test_a_process_that_reads_kafka_is_killed_and_loses_nothing(store, store_url, broker, topic) -> None:
    """`HEADRACE_NOTIFIER__SOURCE`, kill -9 while records come: each job is told."""
    await make_tenant(store)
    source = {"HEADRACE_NOTIFIER__SOURCE": f"kafka://{broker.servers}/{topic}"}
    async with Receiver([answer(200)]) as receiver, Process(store_url, extra=source) as process:
        jobs = [await admit(store, receiver.url(), events=["job.created"]) for _ in range(30)]
        await broker.send(topic, await records_of(store))
        await receiver.wait_for_requests(1, timeout_s=60)
        await process.stop(signal.SIGKILL)
        await process.start()
        jobs += [await admit(store, receiver.url(), events=["job.created"]) for _ in range(30)]
        await broker.send(topic, await records_of(store, skip=30))
        await receiver.wait_for(lambda: len({r.headers["webhook-id"] for r in receiver.requests}) == 60, timeout_s=60)
        assert await process.stop() == 0
    assert len(jobs) == 60

"""A mirror beside the test, or as a process, and what the topic holds afterwards."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition

from contracts.archive import Archive
from contracts.artifacts.local import LocalObjects
from contracts.kafka.connection import Cluster, Topic
from contracts.positions import entry_key, parse_position
from contracts.store import Store
from services.archivist.mirror.app import assemble
from tests.notifier.hooked import POOL, admit, append, completed, started
from tests.notifier.kafka import Broker, Record

LOG = structlog.get_logger()
PUBLIC_URL = "https://x.example"
PARTITIONS = 3
_numbers = itertools.count(1)


async def new_topic(broker: Broker, partitions: int = PARTITIONS) -> str:
    name = f"mirror-{os.getpid()}-{next(_numbers)}"
    await broker.make_topic(name, partitions)
    return name


@contextlib.asynccontextmanager
async def mirroring(
    store: Store, topic: Topic, archive: Archive | None = None, *, lease_ms: int = 2_000
) -> AsyncIterator[list]:
    """Mirror pool `default` in this loop; gives the sources."""
    if archive is None:
        archive = Archive(store, LocalObjects(Path("/nowhere")))
    pools = {POOL: await store.open_pool(POOL)}
    app, sources = assemble(
        store, archive, pools, topic, PUBLIC_URL, LOG, idempotent=False, block_ms=50, lease_ms=lease_ms
    )
    await app.start()
    try:
        yield sources
    finally:
        async with asyncio.timeout(30):
            await app.stop()


def topic_of(broker: Broker, name: str, servers: str | None = None) -> Topic:
    return Topic(Cluster(servers or broker.servers), name)


async def records_in(broker: Broker, topic: str, most: int, partitions: int = PARTITIONS) -> list[list[Record]]:
    """The records of a topic, by partition, until `most` different events are there; as one that joins no group.

    The broker's own end of a partition is of no use: it lags behind what it holds.
    """
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.servers, enable_auto_commit=False)
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[TopicPartition, list[Record]] = {place: [] for place in places}
    await consumer.start()
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        async with asyncio.timeout(30):
            while sum(len(part) for part in news([*found.values()])) < most:
                for place, records in (await consumer.getmany(timeout_ms=200)).items():
                    found[place] += [Record(one.key, one.value, tuple(one.headers)) for one in records]
        return [found[place] for place in places]
    finally:
        await consumer.stop()


def position_of(record: Record) -> str:
    return parse_position(dict(record.headers)["position"].decode()).entry


def news(partitions: list[list[Record]]) -> list[list[str]]:
    """The positions of each partition, once each, where they stand first."""
    return [list(dict.fromkeys(position_of(one) for one in records)) for records in partitions]


def check_order(partitions: list[list[Record]]) -> None:
    """What is keyed by a job stands in one partition, in the order of the log."""
    homes: dict[bytes, int] = {}
    for number, records in enumerate(partitions):
        for record in records:
            assert homes.setdefault(record.key, number) == number
    for positions in news(partitions):
        assert positions == sorted(positions, key=entry_key)


async def jobs(store: Store, count: int) -> None:
    """Jobs of three events each, all at the same time."""

    async def one(number: int) -> None:
        job_id = await admit(store, "https://example.com/hook" if number % 2 else None)
        await append(store, job_id, started())
        await append(store, job_id, completed(job_id))

    await asyncio.gather(*(one(number) for number in range(count)))


class Process:
    """`python -m services.archivist.mirror`, configured by the environment alone."""

    def __init__(
        self, url: str, broker: Broker, topic: str, data_dir: Path, extra: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self._environment = inherited | {
            "HEADRACE_REDIS__URL": url,
            "HEADRACE_DATA_DIR": str(data_dir),
            "HEADRACE_KAFKA__MIRROR": f"kafka://{broker.servers}/{topic}",
            "HEADRACE_KAFKA__IDEMPOTENT": "false",
        } | dict(extra)  # fmt: skip
        self.told = data_dir / "mirror.log"

    async def start(self) -> None:
        with self.told.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.archivist.mirror", env=self._environment, stderr=log,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip

    async def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()

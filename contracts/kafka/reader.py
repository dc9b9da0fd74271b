"""Where our types end and aiokafka begins: one member of a consumer group, reading one topic.

Promises: nothing is committed that was not asked for; whatever goes wrong is `Unavailable`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError

from contracts.errors import Unavailable
from contracts.kafka.connection import Topic
from contracts.kafka.reasons import reason_of

GROUP = "headrace-notifier"
# A member that was killed holds its partitions for so long; 6 s is the least that brokers allow by default.
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
Revoked = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the topic."""

    partition: int
    offset: int
    value: bytes | None
    headers: Mapping[str, bytes]


class TopicReader:
    """Opened with `open`; `revoked` is awaited before partitions go to another member."""

    def __init__(self, topic: Topic, revoked: Revoked) -> None:
        self._cluster, self.topic, self._revoked = topic.cluster, topic.name, revoked
        self._consumer: Any = None

    async def open(self) -> None:
        """Join the group. Raises Unavailable."""
        await self.aclose()
        consumer: Any = AIOKafkaConsumer(
            **self._cluster.options(),
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([self.topic], listener=_Listener(self._revoked))
        try:
            await consumer.start()
        except Exception as error:  # aiokafka also raises what is no KafkaError, such as KeyError for a wrong password
            await consumer.stop()
            raise Unavailable("Kafka", reason_of(error)) from error
        self._consumer = consumer

    async def read(self, most: int, block_ms: int) -> list[Record]:
        """Return the next records, each partition's in order. Raises Unavailable."""
        if self._consumer is None:
            await self.open()
        try:
            read = await self._consumer.getmany(timeout_ms=block_ms, max_records=most)
        except (KafkaError, OSError) as error:
            raise Unavailable("Kafka", str(error)) from error
        return [
            Record(record.partition, record.offset, record.value, dict(record.headers))
            for records in read.values()
            for record in records
        ]

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the next offset of each partition that is still ours. Raises Unavailable."""
        try:
            if wanted := self._ours(offsets):
                await self._consumer.commit(wanted)
        except (KafkaError, OSError) as error:
            raise Unavailable("Kafka", str(error)) from error

    def again(self, offsets: Mapping[int, int]) -> None:
        """Read on from these offsets, where the partitions are still ours."""
        for partition, offset in self._ours(offsets).items():
            self._consumer.seek(partition, offset)

    def _ours(self, offsets: Mapping[int, int]) -> dict[Any, int]:
        ours = self._consumer.assignment() if self._consumer is not None else ()
        return {at: offsets[at.partition] for at in ours if at.partition in offsets}

    async def aclose(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, revoked: Revoked) -> None:
        self._revoked = revoked

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        if revoked:
            await self._revoked()

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        return

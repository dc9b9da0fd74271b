"""Writes records into a topic, each partition's in their order, and says what the broker has acknowledged.

A partition has one batch on its way, and the next is sent when that one is acknowledged: of several at once a later
one may be written while an earlier one fails, and written again the two would stand in the wrong order.
Promises: whatever goes wrong is `Unavailable`, and what was sent may then be there or not; a record that no broker
will take is returned with the reason, and stands before nothing. Partitions are chosen as by Kafka's own clients.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidMessageError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.partitioner import DefaultPartitioner

from contracts.errors import Unavailable
from contracts.kafka.connection import Topic
from contracts.kafka.reasons import reason_of

BATCH_BYTES = 512 << 10
REQUEST_MS = 10_000
CLOSE_S = 2.0
_REFUSED = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record of a topic. `position`: where in the log it comes from."""

    position: str
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class Written:
    """What a topic has: the last position of each partition, how many records, and those that it will never take."""

    last: dict[int, str] = field(default_factory=dict)
    count: int = 0
    refused: list[tuple[Outgoing, str]] = field(default_factory=list)


class TopicWriter:
    """Opened when it is first used; close with `aclose`. One call of `write` at a time."""

    def __init__(self, topic: Topic, *, idempotent: bool) -> None:
        """`idempotent`: the broker drops what one connection sends twice; not every broker can."""
        self.topic = topic.name
        self._options = topic.cluster.options() | {
            "acks": "all",
            "enable_idempotence": idempotent,
            "max_batch_size": BATCH_BYTES,
            "request_timeout_ms": REQUEST_MS,
        }
        self._partitioner = DefaultPartitioner()
        self._producer: Any = None

    async def write(self, records: Sequence[Outgoing]) -> Written:
        """Return when the broker has all of them, on as many replicas as it is set to. Raises Unavailable."""
        try:
            producer = await self._open()
            partitions = sorted(await producer.partitions_for(self.topic))
            parts: dict[int, list[Outgoing]] = {}
            for record in records:
                parts.setdefault(self._partitioner(record.key, partitions, partitions), []).append(record)
            written = Written()
            writing = [self._write_part(producer, number, part, written) for number, part in parts.items()]
            for failure in await asyncio.gather(*writing, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        except Exception as error:  # aiokafka also raises what is no KafkaError, such as KeyError for a wrong password
            if not (isinstance(error, KafkaError) and error.retriable):
                await self.aclose()
            raise Unavailable("Kafka", reason_of(error)) from error
        return written

    async def aclose(self) -> None:
        """Close the connections; what is on its way is not waited for much longer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSE_S):
                    await producer.stop()

    async def _open(self) -> Any:
        if self._producer is None:
            producer: Any = AIOKafkaProducer(**self._options)
            try:
                await producer.start()
            except BaseException:
                with suppress(Exception):
                    await producer.stop()
                raise
            self._producer = producer
        return self._producer

    async def _write_part(self, producer: Any, partition: int, records: Sequence[Outgoing], written: Written) -> None:
        """Write one partition's records, as many at once as fit into a batch."""
        start = 0
        while start < len(records):
            batch, taken = _fill(producer.create_batch(), records[start:])
            await self._write_batch(producer, partition, batch, records[start : start + taken], written)
            start += taken

    async def _write_batch(
        self, producer: Any, partition: int, batch: Any, records: Sequence[Outgoing], written: Written
    ) -> None:  # fmt: skip
        try:
            await (await producer.send_batch(batch, self.topic, partition=partition))
        except _REFUSED as error:
            if len(records) == 1:
                written.refused.append((records[0], reason_of(error)))
                return
            for record in records:  # which of them it was, it does not say
                alone, _ = _fill(producer.create_batch(), [record])
                await self._write_batch(producer, partition, alone, [record], written)
            return
        written.count += len(records)
        written.last[partition] = records[-1].position


def _fill(batch: Any, records: Sequence[Outgoing]) -> tuple[Any, int]:
    taken = 0
    for record in records:
        if batch.append(key=record.key, value=record.value, timestamp=None, headers=list(record.headers)) is None:
            break
        taken += 1
    batch.close()
    return batch, taken

"""Reads the records of all pools from a Kafka topic and hands them to the agents that read logs otherwise.

A record is the public event record (`contracts/envelope.py`) with the job's id as key and headers `position` and
`hooked`. Promises: an offset is committed only when what follows from every record below it is stored; a record that
cannot be read is set aside with its reason; a rebalance, a lost broker and a kill lose nothing and at most plan again,
which makes no second delivery.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import orjson

from contracts.agents.batch import Batch
from contracts.agents.reading import Reading
from contracts.envelope import entry_of
from contracts.errors import Corrupt, Unavailable
from contracts.kafka.connection import Topic
from contracts.kafka.reader import Record, TopicReader
from contracts.positions import Position
from contracts.store import Store
from contracts.store.log import Poison
from contracts.telemetry import Logger
from contracts.wire import Entry

BATCH = 500
BLOCK_MS = 1000
DRAIN_S = 3.0
HAND_ON_S = 2.0  # how long others wait for partitions that go to them

Parts = dict[str, list[Entry | Poison]]
Reached = dict[str, dict[int, str]]


class KafkaSource(Reading):
    """One consumer of the topic, for all pools of this process."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        channels: Mapping[str, Callable[[Batch], None]],
        log: Logger,
        *,
        block_ms: int = BLOCK_MS,
    ) -> None:
        super().__init__(log)
        self._store, self._channels, self._block_ms = store, channels, block_ms
        self._reader = TopicReader(topic, self._on_revoked)
        self._round: dict[int, int] = {}  # what the round in hand allows to commit, by partition
        self._is_whole = True  # whether each part of it that is settled was handled
        self._due: dict[int, int] = {}  # to be committed
        self._reached: Reached = {}  # how far the round in hand plans each pool, by partition
        self._planned: Reached = {}  # to be told, so that the logs may be trimmed

    async def on_stop(self) -> None:
        """Read nothing more, let the agents finish and commit what they were given, and leave the group."""
        self._stop.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._block_ms / 1000 + DRAIN_S):
                await self._ended.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._reader.aclose()

    async def _read_once(self) -> None:
        """Read a round, wait until all parts of it are handled, and commit it; aiokafka fetches ahead meanwhile."""
        records = await self._reader.read(BATCH, self._block_ms)
        try:
            await self._hand_out(records)
        except BaseException:
            self._reader.again({record.partition: record.offset for record in reversed(records)})
            raise
        await self._commit()

    async def _hand_out(self, records: Sequence[Record]) -> None:
        """Give each agent its part. Raises Unavailable when one of them did not handle it."""
        parts = await self._parts(records)
        self._round, self._is_whole = {record.partition: record.offset + 1 for record in records}, True
        self._in_hand.add(len(parts))
        for pool, entries in parts.items():
            self._channels[pool](Batch(entries, in_group=False, settle=self._settle))
        await self._in_hand.until(0)
        if not self._is_whole:
            raise Unavailable("an agent")

    def _settle(self, is_handled: bool) -> None:
        self._is_whole = self._is_whole and is_handled
        self._in_hand.remove()
        if self._in_hand.is_empty and self._is_whole:
            self._due |= self._round
            for pool, upto in self._reached.items():
                self._planned.setdefault(pool, {}).update(upto)

    async def _commit(self) -> None:
        """Say what is planned, then commit it: the other way round a kill in between would say it never."""
        for pool, upto in list(self._planned.items()):
            await self._store.mirror.planned(pool, self._reader.topic, upto)
            self._planned.pop(pool, None)
        if offsets := dict(self._due):
            await self._reader.commit(offsets)
            self._due = {at: offset for at, offset in self._due.items() if offset != offsets[at]}

    async def _on_revoked(self) -> None:
        """Let what is in hand be stored and committed before others read on; what is not, they plan again."""
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(HAND_ON_S):
                await self._in_hand.until(0)
                await self._commit()
        self._due, self._round, self._planned, self._reached = {}, {}, {}, {}

    async def _parts(self, records: Sequence[Record]) -> Parts:
        """Sort records by the pool that their events are of; what cannot be read goes to the first of them."""
        parts: Parts = {}
        self._reached = {}
        for record in records:
            try:
                position, entry = _read(record)
                pool = await self._pool(position)
                parts.setdefault(pool, []).append(entry)
                self._reached.setdefault(pool, {})[record.partition] = entry.position
            except Unavailable:
                raise
            except Exception as error:  # one that nobody foresaw must not stand before all others
                reason = error.reason if isinstance(error, Corrupt) else f"cannot be read: {type(error).__name__}"
                at = f"{self._reader.topic}/{record.partition}/{record.offset}"
                parts.setdefault(min(self._channels), []).append(Poison(at, reason))
        return parts

    async def _pool(self, position: Position) -> str:
        """Return the pool of a position. Raises Corrupt for one that is in no pool, Unavailable for one that is new."""
        directory = self._store.directory
        pool = directory.configuration.pool_of_code(position.pool_code)
        if pool is None:
            pool = (await directory.refresh()).pool_of_code(position.pool_code)
        if pool is None:
            raise Corrupt(str(position), "its pool is not known here")
        if pool not in self._channels:  # this process is about to be started again with it
            raise Unavailable(f"pool {pool}")
        return pool


def _read(record: Record) -> tuple[Position, Entry]:
    """Read a record. Raises Corrupt."""
    try:
        view = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError as error:
        raise Corrupt("record", "it is not JSON") from error
    if not isinstance(view, dict):
        raise Corrupt("record", "it is not an object")
    return entry_of(view, hooked=record.headers.get("hooked", b"1") not in (b"", b"0"))

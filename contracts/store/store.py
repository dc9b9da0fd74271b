"""The store as a service opens it: one client, one batcher, and the calls grouped by who makes them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from redis.asyncio import Redis

from contracts.asked_audit import read_asked
from contracts.backfills import read_backfill
from contracts.dead_letters import read_operation
from contracts.errors import ConfigError, StoreUnavailable
from contracts.events import Event
from contracts.store import keys, replies
from contracts.store.anchored import AnchoredTail, LogTail
from contracts.store.archive import ArchiveCalls
from contracts.store.attempts import Attempts
from contracts.store.audit import AuditReads
from contracts.store.batcher import Batcher
from contracts.store.channel import Channel
from contracts.store.claims import KeyClaims
from contracts.store.clients import command_client, read_hash, read_members
from contracts.store.consumers import Consumers
from contracts.store.dead_letters import DeadLetters
from contracts.store.deliveries import Deliveries
from contracts.store.directory import LAYOUT, Directory
from contracts.store.erasing import Erasing
from contracts.store.jobs import Jobs
from contracts.store.leadership import Leadership
from contracts.store.live import Live
from contracts.store.log import GroupReader, LogReader
from contracts.store.mirror import MirrorCalls
from contracts.store.questions import Questions
from contracts.store.readers import last_position, needed_from, read_entry
from contracts.store.repairs import Repairs
from contracts.store.resources import Resources
from contracts.store.snapshots import Snapshots
from contracts.store.tasks import Tasks
from contracts.store.usage import UsageCalls
from contracts.store.words import Word
from contracts.store.write import KeyRing, Write, encode
from contracts.wire import Entry


@dataclass(frozen=True, slots=True)
class PoolMeta:
    """What a pool says of itself."""

    name: str
    code: str
    epoch: int


class Store:
    """Open with `Store(url)`, use inside one event loop, close with `aclose`.

    `archived_tail`: makes readers that go on in the archive, in processes that have one (`contracts.archive`).
    """

    def __init__(self, url: str, *, retries: int = 2) -> None:
        self.url = url
        self.archived_tail: Callable[[str, str], LogTail] | None = None
        self.client: Redis = command_client(url, retries=retries)
        self.batcher = Batcher(self.client, retries)
        self._channels: list[Channel] = []
        self.jobs = Jobs(self.batcher)
        self.attempts = Attempts(self.batcher)
        self.leadership = Leadership(self.batcher)
        self.deliveries = Deliveries(self.batcher, self.client)
        self.backfills = Tasks(self.batcher, self.client, (keys.backfills, keys.backfill_leases), read_backfill)
        self.consumers = Consumers(self.batcher, self.client)
        self.dead_letters = DeadLetters(self.batcher, self.client)
        self.audit_work = Tasks(self.batcher, self.client, (keys.audit_work, keys.audit_leases), read_asked)
        self.letter_work = Tasks(self.batcher, self.client, (keys.letter_work, keys.letter_leases), read_operation)
        self.claims = KeyClaims(self.batcher)
        self.questions = Questions(self.batcher, self.channel)
        self.live = Live(self.batcher, self.client, self.channel)
        self.resources = Resources(self.batcher)
        self.snapshots = Snapshots(self.batcher, self.client)
        self.archive = ArchiveCalls(self.batcher, self.client)
        self.usage = UsageCalls(self.batcher, self.client)
        self.audit = AuditReads(self.client)
        self.repairs = Repairs(self.batcher)
        self.mirror = MirrorCalls(self.batcher)
        self.erasing = Erasing(self.batcher, self.client)
        self.directory = Directory(self.batcher, self.client, self.channel(), self.channel())

    def channel(self) -> Channel:
        """Return a connection of its own for one reader, which may block."""
        channel = Channel(self.client.connection_pool)
        self._channels.append(channel)
        return channel

    async def open_pool(self, pool: str) -> PoolMeta:
        """Make the pool's log, groups and code if they are not there. Raises ConfigError for a newer layout."""
        code = await self.directory.pool(pool)
        args = [LAYOUT, *keys.LOG_GROUPS]
        parts = replies.texts(await self.batcher.call("open", [keys.log(pool), keys.meta(pool)], args))
        if parts[0] != Word.APPLIED:
            raise ConfigError(
                [f"the store holds layout {parts[1]} of pool {pool}; this version knows {LAYOUT}: upgrade"]
            )
        return PoolMeta(pool, code, int(parts[2]))

    async def epoch(self, pool: str) -> int:
        """Return the epoch of the pool's log; 0 where it is not open."""
        return int((await read_hash(self.client, keys.meta(pool))).get("epoch", 0))

    async def open_configuration_log(self, code: str) -> PoolMeta:
        """Make the notifier's group of the configuration log if it is not there; `code` stands for it in ids."""
        args = [LAYOUT, keys.GROUP_NOTIFIER]
        parts = replies.texts(await self.batcher.call("open", [keys.log(keys.SYSTEM), keys.meta(keys.SYSTEM)], args))
        return PoolMeta(keys.SYSTEM, code, int(parts[2]))

    async def note(self, pool: str, subject: str, event: Event, write_id: str, now_ms: int = 0) -> replies.Reply:
        """Write a fact that concerns no job and no worker; GONE where the pool has no log."""
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool)])
        write = encode(Write(subject, (event,), of_job=False), ring)
        return replies.reply(await self.batcher.call("note", ring.keys, [now_ms, write_id, write]))

    def tail(self, pool: str, position: str) -> LogTail:
        """Return a reader of the pool's log from a position on, with a blocking connection of its own."""
        if self.archived_tail is not None:
            return self.archived_tail(pool, position)
        return LogReader(self.channel(), keys.log(pool), position)

    def anchored(self, pool: str, position: str) -> AnchoredTail:
        """Return a reader as `tail`, that raises Forked when it comes back to another log."""
        return AnchoredTail(self.tail(pool, position), partial(self.end_of_log, pool))

    def group(self, pool: str, group: str, consumer: str) -> GroupReader:
        """Return a member of one of the log's groups."""

        async def remake() -> None:
            await (self.open_configuration_log("") if pool == keys.SYSTEM else self.open_pool(pool))

        return GroupReader(self.channel(), keys.log(pool), group, consumer, remake=remake)

    def work(self, pool: str, worker_id: str) -> GroupReader:
        """Return the reader of a worker's own work stream."""

        async def gone() -> None:
            raise StoreUnavailable(f"the work stream of {worker_id} is gone")

        return GroupReader(self.channel(), keys.work(pool, worker_id), keys.GROUP_WORK, worker_id, remake=gone)

    async def workers(self, pool: str) -> dict[str, dict[str, str]]:
        """Return the hashes of all workers of a pool that are neither lost nor drained, by id."""
        ids = await read_members(self.client, keys.workers(pool))
        hashes = await asyncio.gather(*(read_hash(self.client, keys.worker(pool, worker_id)) for worker_id in ids))
        return {worker_id: fields for worker_id, fields in zip(ids, hashes, strict=True) if fields}

    async def end_of_log(self, pool: str) -> str:
        """Return the position of the newest entry of the pool's log."""
        return await last_position(self.client, keys.log(pool))

    async def entry(self, pool: str, position: str) -> Entry | None:
        """Return one entry of the pool's log; None when it is not there."""
        return await read_entry(self.client, keys.log(pool), position)

    async def needed_by(self, pool: str, group: str) -> str:
        """Return the first position of the pool's log that a group may still need."""
        return await needed_from(self.client, keys.log(pool), group)

    async def aclose(self) -> None:
        """Wait for calls under way and close all connections."""
        await self.batcher.close()
        for channel in self._channels:
            await channel.aclose()
        await self.client.aclose()

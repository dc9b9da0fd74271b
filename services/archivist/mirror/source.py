"""Reads one pool's log from the cursor of its mirror, hands it to the agent, and moves the cursor after it.

Promises: the cursor only moves over entries that the broker has, or that were set aside with their reason; one process
at a time has a pool; at most one batch is in hand; what the log no longer has comes from the archive, and what neither
has is told. A store that lost its tail, or began a new epoch, is read again from where it says the cursor is.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mode import Service

from contracts.agents.batch import Batch
from contracts.agents.reading import Reading
from contracts.archive import Gone
from contracts.errors import ConfigError, StoreUnavailable, Unavailable
from contracts.ids import mint_token
from contracts.positions import START, before
from contracts.store import Store
from contracts.store.anchored import Forked
from contracts.store.log import Poison
from contracts.store.mirror import Hold, Moved
from contracts.telemetry import Logger
from contracts.waiting import wait
from contracts.wire import Entry
from services.archivist.mirror.copying import Copier

BATCH = 500
GATHER_S = 0.02  # a job's events come milliseconds apart: one call for many of them
BLOCK_MS = 1_000  # the longest wait for an event, and so for a stop
LEASE_MS = 10_000
STANDBY_S = 1.0
DRAIN_S = 3.0
LEAVE_S = 1.0


class MirrorSource(Reading):
    """One pool. `fault` says that the configuration is wrong: no time will help."""

    def __init__(
        self, store: Store, pool: str, copier: Copier, hand_over: Callable[[Batch], None], log: Logger,
        *, block_ms: int = BLOCK_MS, lease_ms: int = LEASE_MS,
    ) -> None:  # fmt: skip
        super().__init__(log.bind(pool=pool))
        self._store, self._pool, self._copier, self._hand_over = store, pool, copier, hand_over
        self._block_ms, self._lease_ms = block_ms, lease_ms
        self._token = mint_token(random.SystemRandom().getrandbits(80))
        self._tail = store.anchored(pool, START)
        self._cursor: str | None = None  # None: another process has the pool, or nobody yet
        self._due: Moved | None = None  # what the topic has and the store was not told yet
        self._handed_s = 0.0
        self.fault: ConfigError | None = None

    async def on_start(self) -> None:
        """Begin, also again after a crash, with what the store says."""
        await super().on_start()
        self._copier.give_back(now=False)
        self._cursor, self._due = None, None

    async def on_stop(self) -> None:
        """Read nothing more, let what is in hand be acknowledged and said, and leave the pool to others."""
        self._stop.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._block_ms / 1000 + DRAIN_S):
                await self._ended.wait()
        self._copier.give_back()
        await self._copier.writer.aclose()
        with suppress(StoreUnavailable, TimeoutError):  # only a courtesy: the lease ends by itself
            async with asyncio.timeout(LEAVE_S):
                await self._store.mirror.resign(self._pool, self._token)

    @Service.task
    async def _keep_on(self) -> None:
        """Keep the pool while a batch takes long, and say why it does; give it back when another has the pool."""
        while not self._stop.is_set():
            await wait(self._stop, self._lease_ms / 3000)  # not `self.sleep`: its `wait_for` can miss a cancel
            with suppress(StoreUnavailable, ConfigError):
                if not self._in_hand.is_empty and not await self._lead():
                    self._copier.give_back()

    async def _read_once(self) -> None:
        await self._move()
        if not await self._holds():
            await wait(self._stop, STANDBY_S)
            return
        stood, entries = (self._cursor, self._copier.epoch), await self._next()
        # A log that began a new epoch meanwhile: of which one the entries are, nobody can say. They are read again.
        if not entries:
            return
        if not await self._holds() or (self._cursor, self._copier.epoch) != stood:
            self._begin_again()
            return
        await self._copy(entries)
        await self._move()

    async def _next(self) -> Sequence[Entry | Poison]:
        try:
            entries = await self._tail.read(BATCH, self._block_ms)
            if 0 < len(entries) < BATCH:
                await asyncio.sleep(GATHER_S)
                entries += await self._tail.read(BATCH - len(entries))
            return entries
        except Gone as gone:
            self._log.error("log_has_a_hole", after=gone.after, first=gone.first)
            why = f"what follows is neither in the log nor in the archive, up to {gone.first}"
            self._due = Moved(before(gone.first), 0, 0, {}, [Poison(gone.after, why)])
            await self._move()
        except Forked as fork:  # what was copied of it and not kept by the store is in the topic all the same
            self._log.error("log_forked", position=fork.position)
            self._copier.forget()
        self._begin_again()
        return []

    async def _copy(self, entries: Sequence[Entry | Poison]) -> None:
        """Let the agent copy a batch. Raises Unavailable when it was given back."""
        handled: list[bool] = []

        def settle(is_handled: bool) -> None:
            handled.append(is_handled)
            self._in_hand.remove()

        self._copier.give_back(now=False)
        self._handed_s = time.monotonic()
        self._in_hand.add()
        self._hand_over(Batch(entries, in_group=False, settle=settle))
        await self._in_hand.until(0)
        outcome = self._copier.outcome
        if not handled[0] or outcome is None:
            self._begin_again()
            raise Unavailable("an agent")
        self._due = Moved(entries[-1].position, len(entries), outcome.count, outcome.sent, outcome.poison)

    async def _move(self) -> None:
        """Say what the topic has, for as long as it takes: said never, it would be sent once more."""
        if self._due is None or self._cursor is None:
            return
        if await self._store.mirror.move(self._pool, self._token, self._cursor, self._due):
            self._cursor = self._due.upto
        else:
            self._cursor = None
        self._due = None

    async def _holds(self) -> bool:
        """Take or keep the pool, and stand where the store says."""
        try:
            hold = await self._lead()
        except ConfigError as fault:
            self.fault, hold = fault, None
        if hold is None:
            self._cursor = None
            return False
        if hold.cursor != self._cursor:
            if self._cursor is not None:
                self._log.error("log_rewound", at=self._cursor, to=hold.cursor)
            self._cursor = hold.cursor
            self._begin_again()
        self._copier.epoch = hold.epoch
        return True

    async def _lead(self) -> Hold | None:
        failures, self._copier.failures = self._copier.failures, 0
        try:
            return await self._store.mirror.lead(
                self._pool, self._token, self._lease_ms, self._copier.writer.topic, self._reason, failures
            )
        except BaseException:
            self._copier.failures += failures
            raise

    @property
    def _reason(self) -> str:
        """Why nothing goes on; a broker that hangs says nothing for long."""
        waited_s = 0.0 if self._in_hand.is_empty else time.monotonic() - self._handed_s
        hangs = waited_s > self._lease_ms / 2000
        return self._copier.reason or (f"no acknowledgement for {waited_s:.0f} s" if hangs else "")

    def _begin_again(self) -> None:
        if self._cursor is not None:
            self._tail.begin(self._cursor)

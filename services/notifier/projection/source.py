"""Reads one pool's log as a member of group `notifier` and hands it to the agent, batch by batch.

Promises: an entry stays in the group until the agent stored what follows from it, and is read again when it did not;
what dead consumers left is taken over; an entry that ended the processes handling it is handed out alone, and set
aside after three such tries; no outage of the store and no lost group ends the reading; a stop waits for what is in
hand.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from mode import Service

from contracts.agents.batch import Batch
from contracts.agents.reading import Reading
from contracts.errors import StoreUnavailable
from contracts.positions import START
from contracts.store import Store, keys
from contracts.store.log import Abandoned, Message, Poison
from contracts.store.records import RecordReader, still_says
from contracts.telemetry import Logger
from contracts.waiting import wait
from contracts.wire import Entry

GROUP = keys.GROUP_NOTIFIER
BATCH = 100
AHEAD = 2  # batches in hand: one is planned while the next is read
GATHER_S = 0.02
BLOCK_MS = 1000  # the longest wait for an event, and so for a stop
# Planning takes milliseconds: what another consumer has held for seconds is in nobody's hands any more.
ABANDONED_MS = 5_000
DRAIN_S = 3.0
LEAVE_S = 1.0
TRIES_MAX = 3
ALONE = 1_000  # tries counted from here on are those of an entry that was handed out alone
TIDY_EVERY_S = 600.0
CONSUMER_IDLE_MS = 3_600_000


class GroupSource(Reading):
    """One consumer of one pool's log."""

    def __init__(
        self,
        store: Store,
        pool: str,
        consumer: str,
        hand_over: Callable[[Batch], None],
        log: Logger,
        *,
        forked: Callable[[], None] = lambda: None,
        block_ms: int = BLOCK_MS,
        abandoned_ms: int = ABANDONED_MS,
    ) -> None:
        """`forked` is called when the log is another one than was read; then nothing more is handed over."""
        super().__init__(log.bind(pool=pool, consumer=consumer))
        self._store, self._pool, self._consumer = store, pool, consumer
        self._hand_over = hand_over
        self._block_ms = block_ms
        self._abandoned_ms = abandoned_ms
        self._reader = store.group(pool, GROUP, consumer)
        self._side = store.group(pool, GROUP, consumer)  # not held up by a read that blocks
        self._records = RecordReader(store.channel())
        self._last: Message | None = None  # read
        self._opened = 0
        self._forked, self._is_forked = forked, False
        self._held: set[str] = set()
        self._take_over_from = START
        self._take_over_at_s = 0.0
        self._tidy_at_s = 0.0

    async def on_start(self) -> None:
        """Begin with what this consumer already owns, also after a crash."""
        await super().on_start()
        self._reader.own_again()

    @Service.task
    async def _keep_on(self) -> None:
        """Hold what a body works on for longer than a dead consumer's entries are left alone."""
        while not self._stop.is_set():
            await wait(self._stop, self._abandoned_ms / 3000)  # not `self.sleep`: its `wait_for` can miss a cancel
            with suppress(StoreUnavailable):
                if self._held:
                    await self._side.keep(sorted(self._held))

    async def on_stop(self) -> None:
        """Read nothing more, let the agent finish what it was given, and leave the group."""
        self._stop.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._block_ms / 1000 + DRAIN_S):
                await self._ended.wait()
                await self._in_hand.until(0)
        with suppress(StoreUnavailable, TimeoutError):  # only a courtesy: others tidy up after an hour
            async with asyncio.timeout(LEAVE_S):
                await self._store.deliveries.leave(self._pool, GROUP, CONSUMER_IDLE_MS, self._consumer)

    async def _read_once(self) -> None:
        if self._is_forked:
            raise StoreUnavailable("the log is another one")
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + TIDY_EVERY_S
            await self._store.deliveries.leave(self._pool, GROUP, CONSUMER_IDLE_MS)
        # Not before its own: what is taken over now would be read with that again, and a try be counted twice.
        if not self._reader.reads_own and now_s >= self._take_over_at_s and await self._take_over():
            return
        self._give(_read(await self._next()))
        await self._in_hand.until(AHEAD - 1)

    async def _next(self) -> list[Message]:
        """Return the next batch: what comes within a moment of its first event is planned with it.

        A job's first events come milliseconds apart, and each call for one of them would delay the very processes
        that the job waits for.
        """
        messages = await self._reader.read(BATCH, self._block_ms)
        await self._look()
        if 0 < len(messages) < BATCH:
            await asyncio.sleep(GATHER_S)
            messages += await self._reader.read(BATCH - len(messages), None)
        self._last = next((message for message in reversed(messages) if message.fields is not None), self._last)
        return messages

    async def _look(self) -> None:
        """After each new connection, see whether the log still says what was read of it last.

        What the group handed out is in the log, and lost with it; but what is remembered of jobs may not be so.
        """
        opened, last = self._reader.opened, self._last
        if opened != self._opened and last is not None and last.fields is not None:
            fields = tuple(text for pair in last.fields.items() for text in pair)
            if not await still_says(self._records, self._pool, last.position, fields):
                self._log.error("log_forked", position=last.position)
                self._is_forked = True
                self._forked()
                raise StoreUnavailable("the log is another one")
        self._opened = opened

    async def _take_over(self) -> bool:
        """Hand out what others left, suspects one by one; returns whether there was anything."""
        left = [
            one for one in await self._reader.abandoned(self._abandoned_ms, BATCH) if one.position not in self._held
        ]
        suspect = next((one for one in left if one.tries >= TRIES_MAX), None)
        if suspect is not None:
            await self._try_alone(suspect)
        elif left:
            taken = await self._reader.take_over(self._abandoned_ms, self._take_over_from, BATCH)
            self._take_over_from = taken[0]
            self._give(_read(taken[1]))
            await self._in_hand.until(AHEAD - 1)
        else:
            self._take_over_at_s = asyncio.get_running_loop().time() + self._abandoned_ms / 2500
        return bool(left)

    async def _try_alone(self, suspect: Abandoned) -> None:
        """Hand out an entry alone, so that it is told from those it was read with; set it aside after three tries.

        It is noted before the try, in the group itself, because what happens next may be the end of this process.
        """
        await self._in_hand.until(0)
        tries = max(suspect.tries, ALONE) + 1
        messages = await self._reader.take_one(suspect.position, self._abandoned_ms, tries)
        if messages and tries > ALONE + TRIES_MAX:
            self._give([Poison(suspect.position, f"ended the process that handled it, {TRIES_MAX} times")])
        else:
            self._give(_read(messages))
        await self._in_hand.until(0)

    def _give(self, entries: Sequence[Entry | Poison]) -> None:
        entries = [entry for entry in entries if entry.position not in self._held]
        if not entries:
            return
        positions = {entry.position for entry in entries}
        self._held |= positions
        self._in_hand.add()

        def settle(is_handled: bool) -> None:
            self._held.difference_update(positions)
            self._in_hand.remove()
            if not is_handled:
                self._reader.own_again()

        self._hand_over(Batch(entries, in_group=True, settle=settle))


def _read(messages: Sequence[Message]) -> list[Entry | Poison]:
    return [_read_one(message) for message in messages]


def _read_one(message: Message) -> Entry | Poison:
    try:
        return message.entry()
    except Exception as error:  # one that nobody foresaw must not stand before all others
        return Poison(message.position, f"cannot be read: {type(error).__name__}")

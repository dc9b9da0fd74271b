"""One candidate for the lead of one pool: folds along as a standby, takes the token when it is free, makes turns.

Promises: never ends because the store is away; `run` returns only after `stop`, having resigned, or when a repair made
the snapshot anew behind which this fold began; whatever happens in a term of leadership, the fold goes on from where it
is; but where the store has lost what was folded, `run` raises.
"""

import asyncio
import random

from contracts import events as ev
from contracts.errors import HeadraceError, StoreUnavailable
from contracts.ids import mint_token
from contracts.positions import entry_key
from contracts.store import Store
from contracts.store.log import Poison, pause
from contracts.telemetry import Logger
from contracts.wire import Entry
from services.scheduler.config import SchedulerConfig
from services.scheduler.fold.state import PoolState
from services.scheduler.leader import Leader
from services.scheduler.snapshots import LOOK_EVERY_MS, KeepApart, Pace, keep_state
from services.scheduler.tail import Tail
from services.scheduler.watch import mono_ms

FOLD_AT_ONCE = 5_000
SNAPSHOT_ROW = ("scheduler", "snapshot")  # as `projection.rebuilt` names what `audit` makes anew
ASK_EVERY_MS = 1_000  # a leader that resigns says so to nobody


class Candidate:
    """See the module. `state` is the fold; read it, never change it."""

    def __init__(
        self, store: Store, pool: str, state: PoolState, config: SchedulerConfig, log: Logger, keep_apart: KeepApart
    ) -> None:  # fmt: skip
        self._store, self._pool, self._config, self._log = store, pool, config, log
        self._keep_apart, self._keeping = keep_apart, asyncio.create_task(asyncio.sleep(0))
        self._pace = Pace(config.snapshot_entries, config.snapshot_ms)
        self._looked_ms = -LOOK_EVERY_MS
        self.state = state
        self.leader: Leader | None = None  # of the present term
        self._wake = asyncio.Event()
        self._tail = Tail(store.anchored(pool, state.position), self._wake)
        self._following: asyncio.Task[None] | None = None
        self._token = _mint_token()
        self._has_stood_by = False  # since the last term
        self._began = state.position
        self._over = asyncio.Event()  # told to stop, or this fold began with a snapshot that a repair found wrong

    @property
    def is_leading(self) -> bool:
        """Whether this candidate believes to lead; the store has the last word."""
        return self.leader is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and lead until `stop`, or until the fold must begin anew.

        Raises Forked, Gone when this fold is of a log that is there no more.
        """
        following = self._following = asyncio.create_task(self._tail.follow(self._over))
        waking = asyncio.create_task(self._end_at(stop))
        failures = 0
        try:
            while not self._over.is_set():
                try:
                    await self._run_once(self._over)
                    failures = 0
                except StoreUnavailable:
                    failures += 1
                    await pause(failures, self._over, random.random())
        finally:
            for task in (following, waking, self._keeping):
                task.cancel()
            await asyncio.gather(following, waking, self._keeping, return_exceptions=True)

    async def _run_once(self, stop: asyncio.Event) -> None:
        """Ask for the lead once; serve a term, or fold along until it is time to ask again."""
        token = self._token  # the same until a term is over: the answer that gave it may have been lost
        led, epoch, number = await self._store.leadership.lead(self._pool, token, self._config.leader_lease_ms)
        if not led:
            if not self._has_stood_by:
                self._log.info("standing_by", pool=self._pool, position=self.state.position)
                self._has_stood_by = True
            await self._stand_by(min(ASK_EVERY_MS, number + 10), stop)
            return
        self._log.info("lead_taken", pool=self._pool, epoch=epoch, position=self.state.position)
        leader = Leader(
            self._store, self._pool, token, self.state, self._fold, self._wake, self._config, self._log,
            self._keep_from_apart,
        )  # fmt: skip
        self.leader = leader
        try:
            await leader.lead(number, stop)
        finally:
            self.leader, self._has_stood_by = None, False
            self._token = _mint_token()
            await self._resign(token)

    async def _stand_by(self, ms: int, stop: asyncio.Event) -> None:
        end = asyncio.get_running_loop().time() + ms / 1000
        while not stop.is_set() and (left_s := end - asyncio.get_running_loop().time()) > 0:
            self._wake.clear()
            self._fold()
            await self._keep_own()
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _fold(self) -> None:
        """Fold what has been read; the rest waits for the next call, so that a turn is never late for long."""
        if self._following is not None and self._following.done() and not self._following.cancelled():
            self._following.result()  # raises what ended it: a fold that stands still must not go unseen
        for entry in self._tail.take(FOLD_AT_ONCE):
            if isinstance(entry, Poison):
                self._log.error("entry_skipped", pool=self._pool, position=entry.position, reason=entry.reason)
                self.state.skip(entry.position)
            else:
                self.state.apply(entry)
                if entry.type == ev.ProjectionRebuilt.TYPE:
                    self._heed(entry)

    def _heed(self, entry: Entry) -> None:
        """End with this fold if it rests on a snapshot that was wrong: the next one begins with the one made anew."""
        event = entry.event()
        if not isinstance(event, ev.ProjectionRebuilt) or (event.projection, event.row) != SNAPSHOT_ROW:
            return
        if entry_key(event.position) > entry_key(self._began):
            self._log.warning("fold_outdated", pool=self._pool, position=event.position)
            self._over.set()

    async def _keep_own(self) -> None:
        """As a standby, keep a snapshot of this fold when it is time."""
        if mono_ms() - self._looked_ms < LOOK_EVERY_MS:
            return
        self._looked_ms = mono_ms()
        pointer = await self._store.snapshots.pointer(self._pool)
        self._pace.saw(pointer.position, self.state.entries_read, mono_ms())
        if self._pace.is_due(self.state.entries_read, mono_ms()):
            self._pace.begun(self.state.entries_read, mono_ms())
            await keep_state(self._store, self._pool, self.state)

    def _keep_from_apart(self, newest: str) -> None:
        """As the leader, have a snapshot kept outside this loop when no standby does it."""
        self._pace.saw(newest, self.state.entries_read, mono_ms())
        if self._keeping.done() and self._pace.is_due(self.state.entries_read, mono_ms(), factor=2):
            self._pace.begun(self.state.entries_read, mono_ms())
            self._keeping = asyncio.create_task(self._keep_and_tell())

    async def _keep_and_tell(self) -> None:
        try:
            await self._keep_apart(self._pool)
        except (OSError, HeadraceError) as error:
            self._log.error("snapshot_failed", pool=self._pool, reason=str(error))

    async def _resign(self, token: str) -> None:
        try:
            await self._store.leadership.resign(self._pool, token)
        except StoreUnavailable:
            return  # the lease ends by itself

    async def _end_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._over.set()
        self._wake.set()


def _mint_token() -> str:
    return mint_token(random.SystemRandom().getrandbits(80))

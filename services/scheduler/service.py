"""One candidate for the lead of one pool: folds along as a standby, takes the token when it is free, makes turns.

Promises: never ends because the store is away; `run` returns only after `stop`, having resigned; whatever happens in a
term of leadership, the fold goes on from where it is.
"""

import asyncio
import random

from contracts.errors import StoreUnavailable
from contracts.ids import mint_token
from contracts.store import Store
from contracts.store.log import Poison, pause
from contracts.telemetry import Logger
from services.scheduler.config import SchedulerConfig
from services.scheduler.fold.state import PoolState
from services.scheduler.leader import Leader
from services.scheduler.tail import Tail

FOLD_AT_ONCE = 5_000
ASK_EVERY_MS = 1_000  # a leader that resigns says so to nobody


class Candidate:
    """See the module. `state` is the fold; read it, never change it."""

    def __init__(self, store: Store, pool: str, state: PoolState, config: SchedulerConfig, log: Logger) -> None:
        self._store, self._pool, self._config, self._log = store, pool, config, log
        self.state = state
        self.is_leading = False
        self._wake = asyncio.Event()
        self._tail = Tail(store.tail(pool, state.position), self._wake)

    async def run(self, stop: asyncio.Event) -> None:
        """Fold and lead until `stop`."""
        following = asyncio.create_task(self._tail.follow(stop))
        waking = asyncio.create_task(self._wake_at(stop))
        failures = 0
        try:
            while not stop.is_set():
                try:
                    await self._run_once(stop)
                    failures = 0
                except StoreUnavailable:
                    failures += 1
                    await pause(failures, stop, random.random())
        finally:
            for task in (following, waking):
                task.cancel()
            await asyncio.gather(following, waking, return_exceptions=True)

    async def _run_once(self, stop: asyncio.Event) -> None:
        """Ask for the lead once; serve a term, or fold along until it is time to ask again."""
        token = mint_token(random.SystemRandom().getrandbits(80))
        led, epoch, number = await self._store.leadership.lead(self._pool, token, self._config.leader_lease_ms)
        if not led:
            await self._stand_by(min(ASK_EVERY_MS, number + 10), stop)
            return
        self._log.info("lead_taken", pool=self._pool, epoch=epoch, position=self.state.position)
        leader = Leader(
            self._store, self._pool, token, self.state, self._fold, self._wake, self._config, self._log
        )  # fmt: skip
        self.is_leading = True
        try:
            await leader.lead(number, stop)
        finally:
            self.is_leading = False
            await self._resign(token)

    async def _stand_by(self, ms: int, stop: asyncio.Event) -> None:
        end = asyncio.get_running_loop().time() + ms / 1000
        while not stop.is_set() and (left_s := end - asyncio.get_running_loop().time()) > 0:
            self._wake.clear()
            self._fold()
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _fold(self) -> None:
        """Fold what has been read; the rest waits for the next call, so that a turn is never late for long."""
        for entry in self._tail.take(FOLD_AT_ONCE):
            if isinstance(entry, Poison):
                self._log.error("entry_skipped", pool=self._pool, position=entry.position, reason=entry.reason)
                self.state.skip(entry.position)
            else:
                self.state.apply(entry)

    async def _resign(self, token: str) -> None:
        try:
            await self._store.leadership.resign(self._pool, token)
        except StoreUnavailable:
            return  # the lease ends by itself

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

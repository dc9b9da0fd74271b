"""Sends due deliveries: claims as many as there are places free, makes one attempt each, records what came of it.

Promises: a claim removes nothing, so a sender that is killed loses nothing: its deliveries are due again when the
claim runs out. An attempt is recorded with its number, so two senders of one delivery count one. Over all senders an
endpoint has no more under way than it takes. What is claimed starts at once, and nothing waits in memory. No outage of
the store ends the loop; an attempt made during one is recorded when the store is back.
Does not promise that a receiver gets an event only once: whoever sent and died before recording sends again.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from contracts.deliveries import Ask, Claimed
from contracts.endpoints import Endpoint
from contracts.errors import StoreUnavailable
from contracts.store import Store
from contracts.store.deliveries import SWEEP_MOST
from contracts.store.log import pause
from contracts.telemetry import Logger
from contracts.waiting import wait
from services.notifier.attempt.delivery import Sender
from services.notifier.sending.clock import ServerClock
from services.notifier.sending.delivering import Delivering, Plan
from services.notifier.sending.receivers import Receivers
from services.notifier.sending.record import attempt_of
from services.notifier.sending.rooms import DueEndpoint, share

LOOK = 100  # endpoints looked at together; further ones only when these get no place
LOOK_FURTHER = 10
CLAIM_MS = 1_200  # most attempts end in milliseconds; what a killed process had just begun is not long in coming
HOLD_MS = 3_000  # of one that lasts: its receiver is at work, and would be asked twice
SWEEP_EVERY_S = 5.0
POLL_S = 1.0  # a delivery planned by another process is seen within this,
AGAIN_S = 0.01  # and sooner while there is something to do: doubled with each look that found nothing
GATHER_S = 0.002  # what ends within this is followed by one claim and not by one each
GRACE_S = 5.0
HAND_BACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Places:
    """How many attempts may be under way: of this process, and of one endpoint over all processes."""

    of_process: int
    of_endpoint: int


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An attempt of this process, begun at `since_ms` of its own time."""

    pool: str
    claimed: Claimed
    tenant_id: str
    since_ms: int


class Courier:
    """All attempts of one process, for any number of pools."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        plan: Plan,
        places: Places,
        log: Logger,
        chance: Callable[[], float] = random.random,
        claim_ms: int = CLAIM_MS,
    ) -> None:
        self._store = store
        self._sender = sender
        self._places = places
        self._claim_ms = claim_ms
        self._receivers = Receivers(store, places.of_endpoint)
        self._log = log
        self._chance = chance
        self._clock = ServerClock(lambda: asyncio.get_running_loop().time())
        self._stop = asyncio.Event()
        self._delivering = Delivering(store, sender, plan, self._receivers, self._clock, log, chance, self._stop)
        self._attempts: dict[asyncio.Task[bool], UnderWay] = {}
        self._is_short = False  # an endpoint with something to do got no place
        self._known: dict[str, Mapping[str, Endpoint]] = {}  # what each pool's loop has seen of the configuration
        self._wakes: list[asyncio.Event] = []

    def wake(self) -> None:
        """Look for due deliveries now."""
        for wake in self._wakes:
            wake.set()

    async def run(self, pool: str, stop: asyncio.Event) -> None:
        """Claim and send the pool's due deliveries until `stop`."""
        wake = asyncio.Event()
        self._wakes.append(wake)
        duties = [
            asyncio.create_task(self._repeat(self._hold, self._claim_ms / 4000, pool, stop)),
            asyncio.create_task(self._repeat(self._sweep, SWEEP_EVERY_S, pool, stop)),
        ]
        try:
            await self._claim_until(stop, pool, wake)
        finally:
            self._wakes.remove(wake)
            for duty in duties:
                duty.cancel()
            await asyncio.gather(*duties, return_exceptions=True)

    async def _claim_until(self, stop: asyncio.Event, pool: str, wake: asyncio.Event) -> None:
        failures = quiet = 0
        while not stop.is_set():
            wake.clear()
            try:
                wait_s = await self.claim_once(pool)
                failures, quiet = 0, quiet + 1 if wait_s else 0
                wait_s = min(wait_s, AGAIN_S * 2 ** min(quiet, 10))
            except StoreUnavailable:
                failures, wait_s = await self._fail(failures, stop)
            except Exception:
                self._log.exception("claiming_failed", pool=pool)
                failures, wait_s = await self._fail(failures, stop)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await wake.wait()
                    await asyncio.sleep(GATHER_S)

    async def claim_once(self, pool: str) -> float:
        """Claim for the places that are free and start the attempts; returns the seconds after which to look again."""
        await self._follow_changes(pool)
        self._is_short = False
        for look in range(LOOK_FURTHER):
            if self._free <= 0:
                self._is_short = True
                return POLL_S
            due = await self._store.deliveries.due_endpoints(pool, LOOK, look * LOOK)
            self._clock.observe(due.now_ms)
            if due.endpoints and (asks := await self._asks(pool, due.endpoints)):
                return 0.0 if await self._claim(pool, asks) else GATHER_S
            if len(due.endpoints) < LOOK:
                break
        if due.next_due_ms is None:
            return POLL_S
        return min(POLL_S, max(0.0, (due.next_due_ms - due.now_ms) / 1000))

    async def finish(self) -> None:
        """Let attempts under way end within a grace, then hand back all that is still claimed."""
        with suppress(StoreUnavailable):
            await self._extend(self._attempts.values(), round((GRACE_S + HAND_BACK_S) * 1000))
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=GRACE_S)
        self._stop.set()
        unfinished = dict(self._attempts)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        # Only a courtesy: without it the claims run out by themselves.
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(HAND_BACK_S):
                await self._extend(unfinished.values(), 0)
        await self._sender.aclose()

    @property
    def _free(self) -> int:
        return self._places.of_process - len(self._attempts)

    async def _follow_changes(self, pool: str) -> None:
        """Hold what waits for endpoints that were disabled or deleted; try those again that were changed otherwise."""
        now = self._store.directory.configuration.endpoints
        before = self._known.get(pool, {})
        if now is before:
            return
        for endpoint_id, endpoint in {**before, **now}.items():
            known = before.get(endpoint_id)
            if known is now.get(endpoint_id):
                continue
            if (state := self._receivers.off(endpoint.name)) is not None:
                await self._store.deliveries.hold_all(pool, endpoint.name, state)
            elif known is not None:
                await self._store.deliveries.mend(pool, endpoint.name)
        self._known[pool] = now

    async def _asks(self, pool: str, due: Sequence[tuple[str, str]]) -> list[Ask]:
        # After this, what was disabled before we looked is known to be; an answered call is obeyed at once.
        await self._store.directory.refresh()
        asks: dict[str, Ask] = {}
        for name, _ in due:
            if (state := self._receivers.off(name)) is not None:
                await self._store.deliveries.hold_all(pool, name, state)
            else:
                asks[name] = self._receivers.ask(name)
        running = Counter(attempt.tenant_id for attempt in self._attempts.values())
        endpoints = [DueEndpoint(name, tenant, asks[name].most) for name, tenant in due if name in asks]
        rooms = share(self._places.of_process, running, endpoints)
        self._is_short |= len(rooms) < len(asks)
        return [replace(asks[name], room=room) for name, room in rooms.items()]

    async def _claim(self, pool: str, asks: Sequence[Ask]) -> int:
        now_ms, claims = await self._store.deliveries.claim(pool, asks, self._claim_ms)
        self._clock.observe(now_ms)
        for claimed in claims:
            task = asyncio.create_task(self._delivering.deliver(pool, claimed))
            self._attempts[task] = UnderWay(pool, claimed, claimed.fields.get("tenant", ""), self._clock.mono_ms())
            task.add_done_callback(self._ended)
        return len(claims)

    async def _repeat(
        self, duty: Callable[[str], Awaitable[None]], every_s: float, pool: str, stop: asyncio.Event
    ) -> None:
        while not stop.is_set():
            try:
                await duty(pool)
            except StoreUnavailable:
                pass  # the loop that claims says so
            except Exception:
                self._log.exception("duty_failed", pool=pool)
            await wait(stop, every_s)

    async def _hold(self, pool: str) -> None:
        """Keep the claims of what has been under way for a while: it may last longer than a claim."""
        begun_ms = self._clock.mono_ms() - self._claim_ms // 4
        lasting = [each for each in self._attempts.values() if each.pool == pool and each.since_ms <= begun_ms]
        await self._extend(lasting, max(HOLD_MS, self._claim_ms))

    async def _sweep(self, pool: str) -> None:
        while await self._store.deliveries.forget(pool) == SWEEP_MOST:
            pass

    async def _extend(self, attempts: Iterable[UnderWay], claim_ms: int) -> None:
        pools: dict[str, dict[str, list[tuple[str, int]]]] = {}
        for attempt in attempts:
            of_pool = pools.setdefault(attempt.pool, {})
            of_pool.setdefault(attempt.claimed.endpoint, []).append((attempt.claimed.id, attempt_of(attempt.claimed)))
        for pool, claims in pools.items():
            await self._store.deliveries.hold_claims(pool, claims, claim_ms)

    async def _fail(self, failures: int, stop: asyncio.Event) -> tuple[int, float]:
        await pause(failures, stop, self._chance())
        return failures + 1, 0.0

    def _ended(self, task: asyncio.Task[bool]) -> None:
        attempt = self._attempts.pop(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            # The claim runs out and it is tried again; nothing is recorded that did not happen.
            self._log.error("delivery_failed", delivery_id=attempt.claimed.id, exc_info=error)
        elif self._is_short or task.result():
            self.wake()

"""Sends due deliveries: claims them, makes one attempt each, records what came of it.

Promises: a claim re-scores and removes nothing, so a sender that is killed loses nothing: its deliveries are due
again when the claim runs out. An attempt is recorded with its number, so two senders of one delivery count one.
A slow receiver fills its own lane only. No outage of the store ends the loop; an attempt made during one is
recorded when the store is back.
Does not promise that a receiver gets an event only once: whoever sent and died before recording sends again.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from contracts.errors import Corrupt, StoreUnavailable
from contracts.retry import Schedule
from contracts.store import Store
from contracts.store.deliveries import KEEP_DEAD_S, KEEP_SETTLED_S
from contracts.store.log import pause
from contracts.telemetry import Logger
from services.notifier.attempt.delivery import Sender
from services.notifier.attempt.post import Report
from services.notifier.attempt.verdict import (
    Delivered,
    RetryAt,
    TransportError,
    Unanswered,
    Verdict,
    describe,
    judge,
)
from services.notifier.clock import ServerClock
from services.notifier.lanes import Claimed, Lanes
from services.notifier.planning import lane_of
from services.notifier.record import (
    StoredDelivery,
    attempt_events,
    fields_after,
    read_delivery,
    set_aside_fields,
    tries_of,
)

CLAIM_BATCH = 200
# Short, so that the deliveries of a killed process are not long in coming; held again while an attempt lasts.
CLAIM_MS = 6_000
HOLD_EVERY_MS = 2_000
START_WITHIN_MS = 4_000  # an attempt begins only while its claim has time left to be held again
POLL_S = 1.0  # a delivery planned by another process is seen within this
GRACE_S = 5.0
HAND_BACK_S = 2.0


class Courier:
    """All attempts of one process, for any number of pools."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        schedule: Schedule,
        lanes: Lanes,
        log: Logger,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._sender = sender
        self._schedule = schedule
        self._lanes = lanes
        self._log = log
        self._chance = chance
        self._clock = ServerClock(lambda: asyncio.get_running_loop().time())
        self._attempts: dict[asyncio.Task[None], Claimed] = {}
        self._stop = asyncio.Event()
        self._wakes: list[asyncio.Event] = []

    def wake(self) -> None:
        """Look for due deliveries now."""
        for wake in self._wakes:
            wake.set()

    async def run(self, pool: str, stop: asyncio.Event) -> None:
        """Claim and send the pool's due deliveries until `stop`."""
        wake = asyncio.Event()
        self._wakes.append(wake)
        failures, hold_at_ms = 0, 0
        while not stop.is_set():
            wake.clear()
            try:
                if self._clock.mono_ms() >= hold_at_ms:
                    hold_at_ms = self._clock.mono_ms() + HOLD_EVERY_MS
                    await self._hold(pool)
                wait_s = await self.claim_once(pool)
                failures = 0
            except StoreUnavailable:
                failures, wait_s = await self._fail(failures, stop)
            except Exception:
                self._log.exception("claiming_failed", pool=pool)
                failures, wait_s = await self._fail(failures, stop)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await wake.wait()

    async def claim_once(self, pool: str) -> float:
        """Claim what is due and start what has room; returns the seconds after which to look again."""
        if self._lanes.room == 0:
            return POLL_S
        start_by_ms = self._clock.mono_ms() + START_WITHIN_MS
        due = await self._store.deliveries.claim_due(pool, CLAIM_BATCH, CLAIM_MS)
        self._clock.observe(due.now_ms)
        refused: dict[str, list[str]] = {}
        for delivery_id in due.ids:
            claimed = Claimed(pool, delivery_id, lane_of(delivery_id))
            if not self._lanes.offer(claimed, start_by_ms):
                refused.setdefault(claimed.lane, []).append(delivery_id)
        self._start_attempts()
        for lane, delivery_ids in refused.items():
            put_off_ms = self._lanes.put_off_ms(lane, len(delivery_ids), self._clock.mono_ms())
            await self._store.deliveries.hold(pool, delivery_ids, put_off_ms)
        if len(due.ids) == CLAIM_BATCH:
            return 0.0
        if due.next_due_ms is None:
            return POLL_S
        return min(POLL_S, max(0.0, (due.next_due_ms - due.now_ms) / 1000))

    async def finish(self) -> None:
        """Let attempts under way end within a grace, then hand back all that is still claimed."""
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=GRACE_S)
        self._stop.set()
        unfinished = dict(self._attempts)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        by_pool: dict[str, list[str]] = {}
        for claimed in (*unfinished.values(), *self._lanes.clear()):
            by_pool.setdefault(claimed.pool, []).append(claimed.delivery_id)
        # Only a courtesy: without it the claims run out by themselves.
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(HAND_BACK_S):
                for pool, delivery_ids in by_pool.items():
                    await self._store.deliveries.hold(pool, delivery_ids, 0)

    async def _hold(self, pool: str) -> None:
        """Keep the claims of what is under way and what waits for it: both may last longer than a claim."""
        start_by_ms = self._clock.mono_ms() + START_WITHIN_MS
        waiting = self._lanes.held(pool)
        running = [claimed.delivery_id for claimed in self._attempts.values() if claimed.pool == pool]
        if waiting or running:
            await self._store.deliveries.hold(pool, waiting + running, CLAIM_MS)
            self._lanes.renew(waiting, start_by_ms)

    async def _fail(self, failures: int, stop: asyncio.Event) -> tuple[int, float]:
        await pause(failures, stop, self._chance())
        return failures + 1, 0.0

    def _start_attempts(self) -> None:
        while not self._stop.is_set() and (claimed := self._lanes.take(self._clock.mono_ms())):
            task = asyncio.create_task(self._deliver(claimed))
            self._attempts[task] = claimed
            task.add_done_callback(partial(self._ended, self._clock.mono_ms()))

    def _ended(self, begun_ms: int, task: asyncio.Task[None]) -> None:
        had_room = self._lanes.room > 0
        claimed = self._attempts.pop(task)
        self._lanes.release(claimed, self._clock.mono_ms() - begun_ms)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The claim runs out and it is tried again; nothing is recorded that did not happen.
            self._log.error("delivery_failed", delivery_id=claimed.delivery_id, exc_info=error)
        self._start_attempts()
        if not had_room:
            self.wake()

    async def _deliver(self, claimed: Claimed) -> None:
        try:
            fields = await self._store.deliveries.read(claimed.pool, claimed.delivery_id)
            if fields is None:  # gone by time or erasure: settling it sweeps its due time away
                await self._store.deliveries.settle(claimed.pool, claimed.delivery_id, 1, (), {}, None)
                return
            delivery = read_delivery(claimed.delivery_id, fields)
            if delivery is None:
                return
            secret = await self._store.directory.secret(f"webhook:{delivery.tenant_id}")
        except Corrupt as error:
            await self._set_aside(claimed, tries_of(fields or {}), error.reason)
            return
        except StoreUnavailable:
            return  # nothing was sent; it is due again when the claim runs out
        report = await self._attempt(delivery, secret)
        verdict = judge(report.outcome, delivery.attempt, self._clock.now_ms(), self._chance(), self._schedule)
        await self._record(claimed.pool, delivery, report, verdict)

    async def _attempt(self, delivery: StoredDelivery, secret: str | None) -> Report:
        secrets = () if secret is None else (secret,)
        try:
            return await self._sender.attempt(delivery.post(secrets, self._clock.now_ms() // 1000))
        except ValueError as error:
            self._log.error("secret_unusable", tenant_id=delivery.tenant_id, reason=str(error))
            return Report(Unanswered(TransportError.UNSIGNED), 0)

    async def _set_aside(self, claimed: Claimed, tries: int, reason: str) -> None:
        self._log.error("delivery_set_aside", delivery_id=claimed.delivery_id, reason=reason)
        with suppress(StoreUnavailable):
            fields = set_aside_fields()
            await self._store.deliveries.settle(
                claimed.pool, claimed.delivery_id, tries + 1, (), fields, None, KEEP_DEAD_S
            )

    async def _record(self, pool: str, delivery: StoredDelivery, report: Report, verdict: Verdict) -> None:
        """Record the attempt, however long the store is away: it happened, and must be counted once."""
        outcome = describe(report.outcome)
        events = attempt_events(delivery, report, verdict)
        next_due_ms = verdict.at_ms if isinstance(verdict, RetryAt) else None
        keep_s = KEEP_SETTLED_S if isinstance(verdict, Delivered) else KEEP_DEAD_S
        fields = fields_after(verdict, outcome)
        failures = 0
        while True:
            try:
                # CONFLICT means it is recorded: by this call when its reply was lost, or by another sender.
                await self._store.deliveries.settle(
                    pool, delivery.id, delivery.attempt, events, fields, next_due_ms, keep_s
                )
                break
            except StoreUnavailable:
                failures, _ = await self._fail(failures, self._stop)
        if next_due_ms is not None:
            self.wake()
        self._log.info(
            "webhook_attempted",
            delivery_id=delivery.id,
            event_type=delivery.event_type,
            attempt=delivery.attempt,
            outcome=outcome,
            verdict=type(verdict).__name__,
            elapsed_ms=report.elapsed_ms,
        )

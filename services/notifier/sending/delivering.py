"""One attempt of one claimed delivery: read, sent, recorded, and what it says of its endpoint.

Promises: nothing is recorded that did not happen, and what happened is recorded however long the store is away; an
endpoint that is off by then keeps nothing in its queue.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from contracts.deliveries import Circuit, Claimed
from contracts.errors import Corrupt, StoreUnavailable, Unavailable
from contracts.retry import Schedule
from contracts.store import Store
from contracts.store.log import pause
from contracts.store.replies import Settled
from contracts.telemetry import Logger
from services.notifier.attempt.delivery import Sender
from services.notifier.attempt.post import Report
from services.notifier.attempt.verdict import (
    EndpointGone,
    TransportError,
    Unanswered,
    Verdict,
    describe,
    judge,
)
from services.notifier.sending.clock import ServerClock
from services.notifier.sending.receivers import Receivers
from services.notifier.sending.record import (
    StoredDelivery,
    Target,
    attempt_events,
    read_delivery,
    set_aside,
    settlement,
)
from services.notifier.sending.watch import Failure, Watch

WAITS_AT_LEAST_S = 3_600.0  # behind an open circuit, also where the schedule is shorter


@dataclass(frozen=True, slots=True)
class Plan:
    """When a delivery is tried again, and when its endpoint is left alone or given up."""

    schedule: Schedule
    circuit: Circuit
    disable_after_s: float


class Delivering:
    """Makes attempts; any number at once. `stop` ends waiting for a store that is away."""

    def __init__(
        self, store: Store, sender: Sender, plan: Plan, receivers: Receivers, clock: ServerClock, log: Logger,
        chance: Callable[[], float], stop: asyncio.Event,
    ) -> None:  # fmt: skip
        self._store = store
        self._sender = sender
        self._plan = plan
        self._receivers = receivers
        self._watch = Watch(store, round(plan.disable_after_s * 1000), log)
        self._clock = clock
        self._log = log
        self._chance = chance
        self._stop = stop

    async def deliver(self, pool: str, claimed: Claimed) -> bool:
        """Make one attempt and record it; returns whether the endpoint has more to do."""
        try:
            delivery = read_delivery(claimed)
            target = await self._receivers.target(delivery, self._clock.now_ms())
        except Corrupt as error:
            self._log.error("delivery_set_aside", delivery_id=claimed.id, reason=error.reason)
            with suppress(StoreUnavailable):
                await self._store.deliveries.settle(pool, set_aside(claimed))
            return True
        except StoreUnavailable:
            return False  # nothing was sent; it is due again when the claim runs out
        report = await self._attempt(delivery, target)
        return await self._record(pool, delivery, report)

    async def _attempt(self, delivery: StoredDelivery, target: Target) -> Report:
        try:
            return await self._sender.attempt(delivery.post(target, self._clock.now_ms() // 1000))
        except ValueError as error:
            self._log.error("secret_unusable", tenant_id=delivery.tenant_id, reason=str(error))
            return Report(Unanswered(TransportError.UNSIGNED), 0)

    async def _record(self, pool: str, delivery: StoredDelivery, report: Report) -> bool:
        now_ms, tries = self._clock.now_ms(), delivery.attempt - delivery.base
        verdict = judge(report.outcome, tries, now_ms, self._chance(), self._plan.schedule)
        settled = await self._settle(pool, delivery, report, verdict, now_ms)
        self._log.info(
            "webhook_attempted",
            delivery_id=delivery.id,
            event_type=delivery.event_type,
            attempt=delivery.attempt,
            outcome=describe(report.outcome),
            verdict=type(verdict).__name__,
            elapsed_ms=report.elapsed_ms,
        )
        if settled.applied:
            await self._look_at_endpoint(Failure(pool, delivery, report, settled), verdict, now_ms)
        return settled.has_more

    async def _settle(
        self, pool: str, delivery: StoredDelivery, report: Report, verdict: Verdict, now_ms: int
    ) -> Settled:
        """Record the attempt, however long the store is away: it happened, and must be counted once."""
        endpoint = self._receivers.endpoint(delivery.endpoint)
        events = attempt_events(delivery, report, verdict, None if endpoint is None else endpoint.id)
        settling = settlement(delivery, report, verdict, now_ms, self._chance())
        failures = 0
        while True:
            try:
                # CONFLICT means it is recorded: by this call when its reply was lost, or by another sender.
                return await self._store.deliveries.settle(pool, settling, events, self._plan.circuit)
            except StoreUnavailable:
                await pause(failures, self._stop, self._chance())
                failures += 1

    async def _look_at_endpoint(self, failure: Failure, verdict: Verdict, now_ms: int) -> None:
        name = failure.delivery.endpoint
        endpoint = self._receivers.endpoint(name)
        try:
            if endpoint is not None and failure.settled.row and not endpoint.disabled:
                if isinstance(verdict, EndpointGone):
                    await self._watch.gone(endpoint, failure)
                else:
                    await self._watch.failed(endpoint, failure, now_ms)
            if failure.settled.row >= self._plan.circuit.trip:
                # Nothing gets through, so nothing would ever end: what is older than its whole schedule does.
                before_ms = now_ms - round(max(self._plan.schedule.longest_s, WAITS_AT_LEAST_S) * 1000)
                endpoint_id = None if endpoint is None else endpoint.id
                await self._store.deliveries.expire(failure.pool, name, before_ms, endpoint_id)
            if failure.settled.has_more and (state := self._receivers.off(name)) is not None:
                await self._store.deliveries.hold_all(failure.pool, name, state)
        except Unavailable:
            self._log.warning("endpoint_not_judged", endpoint=name)  # the next failure will be

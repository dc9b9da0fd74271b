"""Endpoints that only fail: warned about at marks on the way, and disabled in the end; or at once when they are gone.

Promises: one success, in whichever pool, begins the time anew; each mark is told once, with what failed last, so that
nobody has to look for it; nothing told holds a URL, a body or a secret. Anonymous endpoints are nobody's to disable.
"""

from dataclasses import dataclass

from contracts import events as ev
from contracts.endpoints import Endpoint
from contracts.store import Store
from contracts.store.replies import Settled
from contracts.telemetry import Logger
from contracts.tenant import Configuration
from services.notifier.attempt.post import Report
from services.notifier.attempt.verdict import Answered, describe
from services.notifier.sending.record import StoredDelivery

MARKS_PERCENT = (90, 70, 50)


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed, and how its endpoint does since."""

    pool: str
    delivery: StoredDelivery
    report: Report
    settled: Settled

    @property
    def status(self) -> int | None:
        """The status of the answer, if there was one."""
        outcome = self.report.outcome
        return outcome.status if isinstance(outcome, Answered) else None


class Watch:
    """Judges each failure of a configured endpoint. `disable_after_ms`: of failures only."""

    def __init__(self, store: Store, disable_after_ms: int, log: Logger) -> None:
        self._store = store
        self._after_ms = disable_after_ms
        self._log = log

    async def gone(self, endpoint: Endpoint, failure: Failure) -> None:
        """Disable an endpoint whose receiver says that it is gone. Raises StoreUnavailable."""
        await self._disable(endpoint, "gone", failure)

    async def failed(self, endpoint: Endpoint, failure: Failure, now_ms: int) -> None:
        """Warn about an endpoint, or disable it, if it is time. Raises StoreUnavailable."""
        settled = failure.settled
        percent = mark(now_ms - settled.since_ms, self._after_ms) if settled.since_ms else 0
        if percent <= settled.warned:
            return
        if await self._succeeded_elsewhere(endpoint, failure):
            return
        if percent >= 100:
            await self._disable(endpoint, "failing", failure)
            return
        event = warning(endpoint, failure, percent, settled.since_ms + self._after_ms)
        await self._store.deliveries.warn(failure.pool, endpoint.name, percent, settled.since_ms, endpoint.id, event)

    async def _succeeded_elsewhere(self, endpoint: Endpoint, failure: Failure) -> bool:
        others = self._store.directory.configuration.pools.keys() - {failure.pool}
        for pool in others:
            if (await self._store.deliveries.endpoint(pool, endpoint.name)).ok_ms > failure.settled.since_ms:
                return True
        return False

    async def _disable(self, endpoint: Endpoint, why: ev.DisabledWhy, failure: Failure) -> None:
        def decide(configuration: Configuration) -> ev.Event | None:
            known = configuration.endpoints.get(endpoint.id)
            # One that was changed meanwhile deserves another chance: perhaps that was the repair.
            if known is None or known.disabled or known.version != endpoint.version:
                return None
            return disabled(endpoint, why, failure)

        await self._store.directory.change(decide, endpoint.id)
        self._log.warning("endpoint_disabled", endpoint_id=endpoint.id, why=why, failures=failure.settled.row)


def mark(failing_ms: int, after_ms: int) -> int:
    """Return the highest mark that is reached, in percent; 0 for none.

    >>> [mark(ms, 1000) for ms in (499, 500, 899, 900, 1000, 5000)]
    [0, 50, 70, 90, 100, 100]
    """
    return next((percent for percent in (100, *MARKS_PERCENT) if failing_ms * 100 >= percent * after_ms), 0)


def warning(endpoint: Endpoint, failure: Failure, percent: int, disables_at_ms: int) -> ev.EndpointFailing:
    """Return what a tenant is told: what failed, how often, and what comes next."""
    delivery, settled = failure.delivery, failure.settled
    return ev.EndpointFailing(
        tenant_id=endpoint.tenant_id,
        endpoint_id=endpoint.id,
        percent=percent,
        since_ms=settled.since_ms,
        disables_at_ms=disables_at_ms,
        failures=settled.row,
        delivery_id=delivery.id,
        job_id=delivery.job_id,
        event_type=delivery.event_type,
        message_id=delivery.message_id,
        attempts=delivery.attempt,
        outcome=describe(failure.report.outcome),
        status=failure.status,
    )


def disabled(endpoint: Endpoint, why: ev.DisabledWhy, failure: Failure) -> ev.EndpointDisabled:
    """Return what the log says of an endpoint that is disabled for its failures."""
    delivery, settled = failure.delivery, failure.settled
    return ev.EndpointDisabled(
        tenant_id=endpoint.tenant_id,
        endpoint_id=endpoint.id,
        why=why,
        by="notifier",
        since_ms=settled.since_ms or None,
        failures=settled.row,
        delivery_id=delivery.id,
        job_id=delivery.job_id,
        event_type=delivery.event_type,
        message_id=delivery.message_id,
        status=failure.status,
        outcome=describe(failure.report.outcome),
    )

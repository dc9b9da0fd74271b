"""What an endpoint is to be sent of the past: of a stretch of the log, or one event of a job.

Promises: nothing that lies in the order of newer events: it is nobody's progress and in nobody's strict order.
"""

from collections.abc import Sequence
from dataclasses import replace

from contracts.backfills import Backfill
from contracts.deliveries import PlannedDelivery
from contracts.endpoints import Endpoint
from contracts.errors import Corrupt
from contracts.ids import is_job_id
from contracts.store import Store
from contracts.wire import Entry
from services.notifier.planning.deliveries import Audience, plan_job
from services.notifier.planning.job_body import read_body
from services.notifier.planning.notices import Source
from services.notifier.planning.reading import JobReader


class PastPlanner:
    """Plans of one pool's past, and stores nothing."""

    def __init__(self, store: Store, pool: str, source: Source) -> None:
        self._store = store
        self._pool = pool
        self._source = source
        self._jobs = JobReader(store, pool)

    async def stretch(self, endpoint: Endpoint, entries: Sequence[Entry]) -> list[PlannedDelivery]:
        """Return what an endpoint wants of some entries of the log."""
        wanted = [entry for entry in entries if is_job_id(entry.subject) and endpoint.wants(entry.type)]
        tenants = await self._jobs.tenants(wanted, entries) if wanted else {}
        jobs: dict[str, list[Entry]] = {}
        for entry in wanted:
            if tenants.get(entry.subject) == endpoint.tenant_id:
                jobs.setdefault(entry.subject, []).append(entry)
        return [delivery for of_job in jobs.values() for delivery in await self._of_job(of_job, endpoint)]

    async def one_event(self, asked: Backfill, endpoint: Endpoint | None) -> list[PlannedDelivery]:
        """Return what is to be sent of one event, also to a job's own webhook; nothing for a job that is forgotten."""
        history = await self._store.jobs.history(self._pool, asked.job_id, after=asked.sequence - 1)
        if history is None or history.state.tenant_id != asked.tenant_id:
            return []
        entries = [entry for entry in history.entries if entry.sequence == asked.sequence]
        everything = None if endpoint is None else replace(endpoint, events=("*",))
        planned = await self._of_job(entries, everything) if entries else []
        name = asked.endpoint_id.removeprefix("wh_")
        return [delivery for delivery in planned if delivery.endpoint == name]

    async def _of_job(self, entries: Sequence[Entry], endpoint: Endpoint | None) -> list[PlannedDelivery]:
        listening = () if endpoint is None else (_as_if_always_there(endpoint),)
        reading = await self._jobs.read(entries, lambda _: listening)
        if reading is None or reading.is_erased:
            return []
        try:
            body = read_body(entries[0].subject, reading.body)
        except Corrupt:
            return []  # said when it was planned for the first time
        audience = Audience(listening, with_own=endpoint is None)
        plan = plan_job(entries, reading.story, body, audience, self._source)
        self._jobs.remember([reading.known] if reading.known else [])
        return [replace(delivery, interval_ms=None, last=False) for delivery in plan.deliveries]


def _as_if_always_there(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, created_ms=0, disabled="", disabled_ms=None, ordering="best-effort")

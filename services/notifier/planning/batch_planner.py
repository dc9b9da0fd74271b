"""From the entries of a batch to what follows from them: who may want them, which jobs to read, what each is told.

Promises: no endpoint is missed whose making was answered before an event happened; what nobody can want costs nothing;
whose jobs the others are costs one call for the batch.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from contracts.endpoints import Endpoint
from contracts.errors import Corrupt
from contracts.ids import is_endpoint_id, is_job_id
from contracts.positions import entry_ms
from contracts.store import Store
from contracts.store.log import Poison
from contracts.telemetry import Logger
from contracts.tenant import Configuration
from contracts.wire import Entry
from services.notifier.planning.deliveries import Audience, Plan, plan_job, plan_operations
from services.notifier.planning.job_body import ERASED_BODY, read_body
from services.notifier.planning.notices import Source
from services.notifier.planning.reading import JobReader, Known
from services.notifier.planning.subscriptions import Subscriptions, wants

READ_AT_ONCE = 16

Entries = Sequence[Entry | Poison]


class BatchPlanner:
    """Plans the batches of one pool, and stores nothing."""

    def __init__(self, store: Store, pool: str, source: Source, log: Logger, home_code: str = "") -> None:
        """`home_code`: of the pool in which deliveries lie, if that is not the pool of the log."""
        self._home_code = home_code or source.pool_code
        self._directory = store.directory
        self._jobs = JobReader(store, pool)
        self._source = source
        self._log = log
        self._indexed: Mapping[str, Endpoint] = {}
        self._subscriptions = Subscriptions(())
        self._places = asyncio.Semaphore(READ_AT_ONCE)

    async def plan(self, entries: Entries) -> tuple[Plan, list[Known]]:
        """Return what follows from a batch that was just read, and what to `remember` once that is stored."""
        subscriptions = self._subscribed(await self._directory.refresh())
        plan = Plan(poison=[entry for entry in entries if isinstance(entry, Poison)])
        readable = [entry for entry in entries if isinstance(entry, Entry)]
        wanted = [entry for entry in readable if entry.hooked or _may_want(subscriptions, entry)]
        plan.add(self._plan_operations(wanted, subscriptions))
        of_jobs, strangers = _by_job(wanted)
        plan.poison += strangers
        jobs = await self._wanted_jobs(of_jobs, readable, subscriptions)
        of_each = await asyncio.gather(*(self._plan_job(of_job, subscriptions) for of_job in jobs))
        for of_job, _ in of_each:
            plan.add(of_job)
        return plan, [known for _, known in of_each if known is not None]

    def remember(self, planned: Iterable[Known]) -> None:
        """Build on what is stored now."""
        self._jobs.remember(planned)

    def _subscribed(self, configuration: Configuration) -> Subscriptions:
        if self._indexed is not configuration.endpoints:
            self._indexed = configuration.endpoints
            self._subscriptions = Subscriptions(configuration.endpoints.values())
        return self._subscriptions

    async def _wanted_jobs(
        self, of_jobs: Sequence[list[Entry]], readable: Sequence[Entry], subscriptions: Subscriptions
    ) -> list[list[Entry]]:
        """Leave out the events of tenants that have no endpoint for them; the mark of a job's own webhook is enough."""
        unmarked = [entry for of_job in of_jobs for entry in of_job if not entry.hooked]
        if not unmarked:
            return list(of_jobs)
        tenants = await self._jobs.tenants(unmarked, readable)

        def has_listener(entry: Entry) -> bool:
            listeners = subscriptions.of_tenant(tenants.get(entry.subject, ""))
            return any(wants(endpoint, entry.type, entry_ms(entry.position)) for endpoint in listeners)

        kept = ([entry for entry in of_job if entry.hooked or has_listener(entry)] for of_job in of_jobs)
        return [of_job for of_job in kept if of_job]

    async def _plan_job(self, entries: Sequence[Entry], subscriptions: Subscriptions) -> tuple[Plan, Known | None]:
        job_id = entries[0].subject
        async with self._places:  # its body may be megabytes, and is let go with the place
            reading = await self._jobs.read(entries, subscriptions.of_tenant)
            if reading is None:  # whom to tell is gone with it
                self._log.warning("job_forgotten_before_planning", job_id=job_id, events_count=len(entries))
                return Plan(), None
            is_erased = reading.is_erased
            try:
                body = ERASED_BODY if is_erased else read_body(job_id, reading.body)
            except Corrupt as error:
                return Plan(poison=[Poison(entry.position, error.reason) for entry in entries]), None
            audience = Audience(reading.endpoints, reading.handed, with_own=not is_erased)
            return plan_job(entries, reading.story, body, audience, self._source), reading.known

    def _plan_operations(self, entries: Sequence[Entry], subscriptions: Subscriptions) -> Plan:
        told = [
            (entry, tenant_id, subscriptions.of_tenant(tenant_id))
            for entry in entries
            if is_endpoint_id(entry.subject) and (tenant_id := _tenant_of(entry))
        ]
        return plan_operations(told, self._source, self._home_code)


def _may_want(subscriptions: Subscriptions, entry: Entry) -> bool:
    return subscriptions.may_want(entry.type, entry_ms(entry.position))


def _by_job(entries: Iterable[Entry]) -> tuple[list[list[Entry]], list[Poison]]:
    """Return the events of each job, oldest first, and those that are marked and belong to no job."""
    jobs: dict[str, list[Entry]] = {}
    for entry in entries:
        jobs.setdefault(entry.subject, []).append(entry)
    strangers: list[Poison] = []
    for subject in [subject for subject in jobs if not is_job_id(subject)]:
        of_none = jobs.pop(subject)
        if not is_endpoint_id(subject):
            strangers += [Poison(entry.position, "hooked, but not of a job") for entry in of_none]
    return [sorted(of_job, key=lambda entry: entry.sequence) for of_job in jobs.values()], strangers


def _tenant_of(entry: Entry) -> str:
    event = entry.event()
    return str(getattr(event, "tenant_id", ""))

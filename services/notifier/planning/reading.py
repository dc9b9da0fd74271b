"""Reads the jobs of a batch: whose they are, and how they were at its events.

Promises: whose jobs they are costs one call for a batch, and none for those seen before; a job whose last events were
planned here is read from there on, not from its beginning; memory is bounded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from contracts import events as ev
from contracts.endpoints import Endpoint
from contracts.errors import Corrupt
from contracts.job import JobState
from contracts.recent import Recent
from contracts.store import Store
from contracts.store.jobs import History
from contracts.wire import Entry
from services.notifier.planning.story import Story, tell

TENANTS_KEPT = 20_000
JOBS_KEPT = 4_096

EndpointsOf = Callable[[str], Sequence[Endpoint]]


@dataclass(frozen=True, slots=True)
class Known:
    """A job at an event, and the strict endpoints that were handed all of it up to there."""

    state: JobState
    handed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reading:
    """A job around some events. `handed`: up to where each strict endpoint has all; `known`: once this is stored."""

    story: Story
    body: bytes
    endpoints: Sequence[Endpoint]
    handed: Mapping[str, int]
    known: Known | None

    @property
    def is_erased(self) -> bool:
        """Whether its content is gone."""
        return self.story.newest.erased_ms is not None


class JobReader:
    """The jobs of one pool."""

    def __init__(self, store: Store, pool: str) -> None:
        self._jobs = store.jobs
        self._pool = pool
        self._tenants: Recent[str, str] = Recent(TENANTS_KEPT)
        self._known: Recent[str, Known] = Recent(JOBS_KEPT)

    async def tenants(self, entries: Sequence[Entry], among: Iterable[Entry]) -> dict[str, str]:
        """Return the tenants of the jobs of `entries`; what is told `among` a batch need not be asked for."""
        for entry in among:
            if entry.type == ev.JobCreated.TYPE:
                self._learn(entry)
        job_ids = {entry.subject for entry in entries}
        known = {job_id: tenant_id for job_id in job_ids if (tenant_id := self._tenants.get(job_id)) is not None}
        if missing := sorted(job_ids - known.keys()):
            found = await self._jobs.tenants(self._pool, missing)
            for job_id, tenant_id in found.items():
                self._tenants.put(job_id, tenant_id)
            known |= found
        return known

    async def read(self, entries: Sequence[Entry], endpoints_of: EndpointsOf) -> Reading | None:
        """Read one job for some of its events, by rising sequence; None for one that is forgotten."""
        job_id, first, last = entries[0].subject, entries[0].sequence, entries[-1].sequence
        known = self._known.get(job_id)
        start = known.state if known is not None and known.state.sequence < first else None
        history = await self._history(job_id, first - 1 if start is None else start.sequence)
        if history is None:
            return None
        endpoints = endpoints_of(history.state.tenant_id)
        strict = frozenset(one.name for one in endpoints if one.ordering == "strict")
        has_all = known.handed if known is not None else frozenset()
        if start is None and first == 1:
            start = JobState(job_id)
        elif strict - has_all or (start is None and _needs_past(history, entries, endpoints)):
            start = JobState(job_id)
            history = await self._history(job_id, 0) or history
        story = _story(start, history)
        handed = {} if known is None else dict.fromkeys(has_all, known.state.sequence)
        return Reading(story, history.body, endpoints, handed, _known_after(story, last, strict))

    def remember(self, planned: Iterable[Known]) -> None:
        """Build on what was planned and is stored now."""
        for known in planned:
            self._known.put(known.state.id, known)

    async def _history(self, job_id: str, after: int) -> History | None:
        return await self._jobs.history(self._pool, job_id, after=after, with_body=True)

    def _learn(self, entry: Entry) -> None:
        try:
            tenant_id = entry.raw_data().get("tenantId")
        except Corrupt:
            return
        if isinstance(tenant_id, str):
            self._tenants.put(entry.subject, tenant_id)


def _needs_past(history: History, entries: Sequence[Entry], endpoints: Sequence[Endpoint]) -> bool:
    """Whether the job as it is now does not say how it was, or who had it before an event that ended it."""
    is_older = any(entry.sequence != history.state.sequence for entry in entries)
    return is_older or any(one.format == "cloudevents" for one in endpoints)


def _story(start: JobState | None, history: History) -> Story:
    entries = history.entries
    if start is None or not entries or entries[0].sequence != start.sequence + 1:
        return Story(history.state, {})  # the log does not reach back to where we know the job
    return tell(start, entries, history.state)


def _known_after(story: Story, last: int, strict: frozenset[str]) -> Known | None:
    if last in story.moments:
        return Known(story.moments[last].after, strict)
    if story.newest.sequence == last and not strict:
        return Known(story.newest)
    return None

"""Whose jobs the events of a pool are about, and how they were at each of them.

Promises: whose jobs they are costs one call for a batch, and none for those seen before, so that memory is bounded and
a stranger's job is never read; a job that is forgotten is found by its own events, in the archive or the log.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contracts.archive.backward import segment_of, story
from contracts.archive.reading import Archive
from contracts.envelope import JsonObject, Origin, entry_view, event_view
from contracts.errors import Corrupt
from contracts.events import JobCreated
from contracts.ids import is_job_id
from contracts.job import JobState
from contracts.job_fold import evolve
from contracts.recent import Recent
from contracts.store import Store
from contracts.store.jobs import MOST_EVENTS
from contracts.wire import Entry

OWNERS_KEPT = 20_000
STATES_KEPT = 4_096
AT_ONCE = 16  # jobs read at the same time


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose job it is, and of which model. None: nobody asked for it yet."""

    tenant_id: str
    user_digest: str | None = None
    model: str | None = None

    def is_of(self, model: str) -> bool:
        """Whether it is a job of this model, given as its name or as name@version."""
        return self.model is not None and model in (self.model, self.model.partition("@")[0])


Owners = dict[str, Owner]
Moments = Mapping[int, tuple[JobState, JobState]]  # by sequence: without and with the event


class PoolJobs:
    """The jobs of one pool."""

    def __init__(self, store: Store, archive: Archive, pool: str) -> None:
        self._store, self._archive, self._pool = store, archive, pool
        self._owners: Recent[str, Owner] = Recent(OWNERS_KEPT)
        self._states: Recent[str, JobState] = Recent(STATES_KEPT)  # after the last event shown: who reads on goes on

    async def owners(
        self, entries: Sequence[Entry], among: Iterable[Entry], *, with_users: bool = False, with_models: bool = False
    ) -> Owners:
        """Return whose jobs these entries are about; what is told `among` a batch need not be asked for.

        A job of which nobody knows any more whose it was is left out.
        """
        for entry in among:
            if entry.type == JobCreated.TYPE:
                self._learn(entry)
        last = {entry.subject: entry for entry in entries if is_job_id(entry.subject)}
        known = {
            job_id: owner
            for job_id in last
            if (owner := self._owners.get(job_id)) is not None
            and (owner.user_digest is not None or not with_users)
            and (owner.model is not None or not with_models)
        }
        missing = sorted(last.keys() - known.keys())
        if missing and not with_users:
            for job_id, owner in (await self._ask(missing, with_models=with_models)).items():
                known[job_id] = owner
                self._owners.put(job_id, owner)
        for job_id in sorted(last.keys() - known.keys()):
            events = await self.events(last[job_id])
            if events[0].type == JobCreated.TYPE and (owner := self._learn(events[0])) is not None:
                known[job_id] = owner
        return known

    async def _ask(self, job_ids: Sequence[str], *, with_models: bool) -> Owners:
        """Return what the store knows; it keeps users in bodies only."""
        jobs = self._store.jobs
        if not with_models:
            return {job_id: Owner(of) for job_id, of in (await jobs.tenants(self._pool, job_ids)).items()}
        tenants, models = await asyncio.gather(jobs.tenants(self._pool, job_ids), jobs.models(self._pool, job_ids))
        return {job_id: Owner(of, model=models[job_id]) for job_id, of in tenants.items() if job_id in models}

    async def views(self, entries: Sequence[Entry], owners: Owners, origins: Mapping[str, Origin]) -> list[JsonObject]:
        """Return entries as event records, in their order. `origins`: by position."""
        by_job: dict[str, list[Entry]] = {}
        for entry in entries:
            by_job.setdefault(entry.subject, []).append(entry)
        moments: dict[str, Moments] = {}
        of_jobs = [job_id for job_id in by_job if is_job_id(job_id)]
        for at in range(0, len(of_jobs), AT_ONCE):
            group = of_jobs[at : at + AT_ONCE]
            found = await asyncio.gather(*(self._moments(by_job[job_id], owners.get(job_id)) for job_id in group))
            moments |= dict(zip(group, found, strict=True))
        return [_view(entry, moments.get(entry.subject, {}), origins[entry.position]) for entry in entries]

    async def events(self, last: Entry) -> list[Entry]:
        """Return what there is of a job's events up to `last`, oldest first; of a forgotten job, too."""
        history = await self._store.jobs.history(self._pool, last.subject)
        if history is not None and history.complete:
            return [entry for entry in history.entries if entry.sequence <= last.sequence]
        return await story(self._store, self._archive, self._pool, last, MOST_EVENTS)

    async def _moments(self, wanted: Sequence[Entry], owner: Owner | None) -> Moments:
        first = wanted[0].sequence
        state = JobState(wanted[0].subject) if first == 1 else self._states.get(wanted[0].subject)
        events = wanted
        if state is None or [entry.sequence for entry in wanted] != [
            *range(state.sequence + 1, wanted[-1].sequence + 1)
        ]:
            events = await self.events(wanted[-1])
            state = JobState(wanted[0].subject, events[0].sequence - 1, tenant_id=owner.tenant_id if owner else "")
        moments: dict[int, tuple[JobState, JobState]] = {}
        for entry in events:
            before, state = state, _follow(state, entry)
            moments[entry.sequence] = (before, state)
        self._states.put(state.id, state)
        return moments

    def _learn(self, created: Entry) -> Owner | None:
        try:
            data = created.raw_data()
        except Corrupt:
            return None
        tenant_id, user, model = data.get("tenantId"), data.get("userDigest"), data.get("model")
        if not isinstance(tenant_id, str):
            return None
        owner = Owner(tenant_id, user if isinstance(user, str) else "", model if isinstance(model, str) else "")
        self._owners.put(created.subject, owner)
        return owner


def _follow(state: JobState, entry: Entry) -> JobState:
    """Fold one more event; what does not fit, since earlier ones are gone, moves the place only."""
    try:
        return evolve(state, entry)
    except Corrupt:
        return replace(state, sequence=entry.sequence, position=entry.position)


def _view(entry: Entry, moments: Moments, origin: Origin) -> JsonObject:
    if is_job_id(entry.subject):
        before, after = moments[entry.sequence]
        return event_view(entry, before, after, origin)
    return entry_view(entry, origin)


async def origins_of(archive: Archive, pool: str, live: Origin, positions: Iterable[str]) -> dict[str, Origin]:
    """Return where positions lie: those that are sealed in the epoch of their segment, others in the log as it is."""
    names = await archive.segments(pool)
    found: dict[str, Origin] = {}
    for position in positions:
        name = segment_of(names, position) if names else None
        found[position] = live if name is None else replace(live, epoch=name.epoch)
    return found

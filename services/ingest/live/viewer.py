"""Entries of a log as the public records of those tenants who listen. An entry does not say whose job it is of.

Promises: whose a job is, is known from its first event, and otherwise asked for in one call for all that are not known;
a job that was forgotten meanwhile is traced back to its first event, so that no event of a tenant is left out. A record
is what a fold of the job's log up to its event gives, as far as the log goes back.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from contracts import events as ev
from contracts.archive.reading import Archive
from contracts.envelope import Origin, entry_view
from contracts.errors import Corrupt
from contracts.job import JobState, JobStatus
from contracts.store import Store
from contracts.store.jobs import MOST_EVENTS
from contracts.wire import Entry
from services.ingest.live.resuming import follow_on, record_of, state_before
from services.ingest.live.subscription import PREVIEW

MOST_JOBS = 20_000


class Viewed(NamedTuple):
    """One event; `data` is its public record, empty for a preview. No tenant: of a worker, a pool ..."""

    entry: Entry
    pool: str
    tenant_id: str
    user_digest: str | None
    status: JobStatus | None
    data: bytes

    @property
    def type(self) -> str:
        return self.entry.type

    @property
    def subject(self) -> str:
        return self.entry.subject


@dataclass(slots=True)
class _Known:
    tenant_id: str
    user_digest: str | None = None
    state: JobState | None = None  # None for a job of a tenant who did not listen


class Viewer:
    """For one pool. Entries are given in the order of the log; what lies between them is another's business."""

    def __init__(self, store: Store, archive: Archive, pool: str, origin: Callable[[], Origin]) -> None:
        self._store, self._archive, self._pool, self._origin = store, archive, pool, origin
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def show(
        self, entries: Sequence[Entry], is_wanted: Callable[[str], bool], *, with_others: bool = False
    ) -> list[Viewed]:  # fmt: skip
        """Return the events of those tenants' jobs. Raises Unavailable: then ask again with the same entries.

        Args:
            with_others: those that are of no job, too.
        """
        of_jobs = [entry for entry in entries if entry.sequence > 0]
        first: dict[str, Entry] = {}
        for entry in of_jobs:
            first.setdefault(entry.subject, entry)
        await self._find_owners([entry for entry in first.values() if entry.subject not in self._known])
        await self._find_states([each for each in first.values() if self._lacks_state(each, is_wanted)])
        shown = []
        for entry in entries:
            if entry.sequence == 0:
                shown.append(self._show_other(entry) if with_others else None)
            elif is_wanted(self._known[entry.subject].tenant_id):
                shown.append(self._show(entry))
        self._forget_oldest()
        return [viewed for viewed in shown if viewed is not None]

    def _forget_oldest(self) -> None:
        while len(self._known) > MOST_JOBS:
            self._known.popitem(last=False)

    def _lacks_state(self, entry: Entry, is_wanted: Callable[[str], bool]) -> bool:
        known = self._known[entry.subject]
        if not is_wanted(known.tenant_id):
            known.state = None  # nobody listens any more: what follows is not folded
            return False
        return known.state is None

    async def _find_owners(self, entries: Sequence[Entry]) -> None:
        asked = [entry for entry in entries if not self._learn(entry)]
        owners = await self._store.jobs.tenants(self._pool, [entry.subject for entry in asked]) if asked else {}
        for entry in asked:
            tenant_id = owners.get(entry.subject)
            if tenant_id is not None:
                self._known[entry.subject] = _Known(tenant_id)
            elif not self._learn(await self._created(entry)):
                self._known[entry.subject] = _Known("")  # nobody can say any more

    def _learn(self, entry: Entry | None) -> bool:
        created = None if entry is None else _creation(entry)
        if entry is None or created is None:
            return False
        state = JobState(entry.subject, tenant_id=created.tenant_id)
        self._known[entry.subject] = _Known(created.tenant_id, created.user_digest, state)
        return True

    async def _created(self, entry: Entry) -> Entry | None:
        """Trace a job's events back to its first one."""
        at: Entry | None = entry
        while at is not None and at.previous:
            before = await self._store.entry(self._pool, at.previous)
            if before is None:
                older = await self._archive.below(self._pool, at.previous, 0, MOST_EVENTS)
                return older[-1] if older else None
            at = before
        return at

    async def _find_states(self, entries: Sequence[Entry]) -> None:
        """Fold the jobs up to right before these entries."""
        calls = (self._store.jobs.history(self._pool, entry.subject) for entry in entries)
        for entry, history in zip(entries, await asyncio.gather(*calls), strict=True):
            known = self._known[entry.subject]
            if history is None:
                known.state = JobState(entry.subject, tenant_id=known.tenant_id)
                continue
            known.state = state_before(history, [each for each in history.entries if each.sequence >= entry.sequence])
            created = _creation(history.entries[0]) if history.complete else None
            if created is not None:
                known.user_digest = created.user_digest

    def _show(self, entry: Entry) -> Viewed | None:
        known = self._known[entry.subject]
        self._known.move_to_end(entry.subject)
        before = known.state
        assert before is not None
        if entry.type == PREVIEW:
            return Viewed(entry, self._pool, known.tenant_id, known.user_digest, before.status, b"")
        known.state = after = follow_on(before, entry)
        data = record_of(entry, before, after, self._origin())
        if data is None:
            return None
        return Viewed(entry, self._pool, known.tenant_id, known.user_digest, after.status, data)

    def _show_other(self, entry: Entry) -> Viewed | None:
        try:
            data = orjson.dumps(entry_view(entry, self._origin()))
        except Corrupt:
            return None
        return Viewed(entry, self._pool, "", None, None, data)


def _creation(entry: Entry) -> ev.JobCreated | None:
    try:
        event = entry.event() if entry.type == "job.created" else None
    except Corrupt:
        return None
    return event if isinstance(event, ev.JobCreated) else None

"""Whose jobs the entries of a log are about: from what was read before, else from the jobs themselves.

Promises: the same answer as reading the log from its beginning would give; of a job that is forgotten, its own events
tell, in the archive or the log. Memory is bounded; what was not seen lately costs one call for a batch.
"""

from collections.abc import Sequence

from contracts.archive import Archive
from contracts.archive.backward import story
from contracts.events import JobCreated
from contracts.recent import Recent
from contracts.store import Store
from contracts.store.jobs import MOST_EVENTS
from contracts.usage.fold import Owner, needs_owner, owner_told
from contracts.wire import Entry

MOST_KEPT = 20_000


class Owners:
    """The owners of one pool's jobs."""

    def __init__(self, store: Store, archive: Archive, pool: str) -> None:
        self._store, self._archive, self._pool = store, archive, pool
        self._kept: Recent[str, Owner] = Recent(MOST_KEPT)

    async def of(self, entries: Sequence[Entry]) -> dict[str, Owner]:
        """Return the owners that these entries need, by job. Raises Unavailable, Corrupt."""
        found: dict[str, Owner] = {}
        last = {entry.subject: entry for entry in entries if needs_owner(entry)}
        for entry in entries:
            if entry.type == JobCreated.TYPE and (owner := owner_told(entry)) is not None:
                self._kept.put(entry.subject, owner)
                if entry.subject in last:
                    found[entry.subject] = owner
        found |= {job_id: owner for job_id in last if (owner := self._kept.get(job_id)) is not None}
        if missing := sorted(last.keys() - found.keys()):
            asked = await self._store.jobs.owners(self._pool, missing)
            found |= {job_id: Owner(*each) for job_id, each in asked.items()}
        for job_id in sorted(last.keys() - found.keys()):
            events = await story(self._store, self._archive, self._pool, last[job_id], MOST_EVENTS)
            if events[0].type == JobCreated.TYPE and (owner := owner_told(events[0])) is not None:
                found[job_id] = owner
        for job_id, owner in found.items():
            self._kept.put(job_id, owner)
        return found

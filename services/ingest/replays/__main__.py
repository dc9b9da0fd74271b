"""`python -m services.ingest.replays`: a tenant's jobs as they were at a place in the log, made from it.

Promises: the answer names the places it is the fold of; nothing is written anywhere, least of all where the live
projections are; entries that cannot be folded are counted, not guessed.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from contracts.archive import Archive
from contracts.aside import CannotAnswer, JsonObject, answer
from contracts.errors import Corrupt
from contracts.job import JobState
from contracts.job_fold import evolve
from contracts.positions import START, entry_key
from contracts.wire import Entry
from services.ingest.events.standing import Standing

MOST_ENTRIES = 2_000_000
MOST_SHOWN = 500
_AT_ONCE = 2_000


class Projection:
    """One pool's jobs of one tenant, or one job."""

    def __init__(self, tenant_id: str, job_id: str | None = None) -> None:
        self.standing = Standing(tenant_id)
        self.jobs: dict[str, JobState] = {}
        self.skipped = 0
        self._job_id = job_id

    def fold(self, entry: Entry) -> None:
        """Take in the next entry."""
        try:
            self.standing.fold(entry)
            self._fold_job(entry)
        except Corrupt:
            self.skipped += 1

    def _fold_job(self, entry: Entry) -> None:
        job_id = entry.subject
        if self._job_id not in (None, job_id):
            return
        if entry.type == "job.created" and entry.raw_data().get("tenantId") == self.standing.tenant_id:
            self.jobs[job_id] = JobState(job_id)
        if job_id in self.jobs:
            self.jobs[job_id] = evolve(self.jobs[job_id], entry)


async def project(question: Mapping[str, Any], archive: Archive) -> JsonObject:
    """Fold each pool up to its place. Raises CannotAnswer."""
    pools: dict[str, JsonObject] = {}
    for pool, until in question["pools"].items():
        found = Projection(question["tenantId"], question.get("jobId"))
        async for entry in _entries(archive, pool, until):
            found.fold(entry)
        pools[pool] = _told(found)
    return {"pools": pools}


async def _entries(archive: Archive, pool: str, until: str) -> AsyncIterator[Entry]:
    if entry_key(until) == entry_key(START):
        return
    seen = 0
    async for batch in archive.entries(pool, None, until, _AT_ONCE):
        seen += len(batch)
        if seen > MOST_ENTRIES:
            raise CannotAnswer("too_large", f"more than {MOST_ENTRIES} events lie before this place")
        for entry in batch:
            if isinstance(entry, Entry):
                yield entry


def _told(found: Projection) -> JsonObject:
    newest = sorted(found.jobs, reverse=True)[:MOST_SHOWN]
    running = found.standing.jobs
    return {
        "position": found.standing.position,
        "counts": found.standing.counts,
        "running": [job_id for job_id, job in running.items() if job.worker_id is not None][:MOST_SHOWN],
        "jobs": [state_view(found.jobs[job_id]) for job_id in newest],
        "jobsInAll": len(found.jobs),
        "skipped": found.skipped,
    }


def state_view(state: JobState) -> JsonObject:
    """Return a job's folded state, without anything of its body."""
    return {
        "id": state.id,
        "status": state.status,
        "model": state.model,
        "priority": state.priority,
        "phase": state.phase,
        "progress": state.progress,
        "attempt": state.attempt,
        "run": state.run,
        "fence": state.fence,
        "sequence": state.sequence,
        "position": state.position,
        "workerId": state.worker_id,
        "offers": len(state.offers),
        "errorCode": state.error_code,
    }


if __name__ == "__main__":
    sys.exit(answer(project))

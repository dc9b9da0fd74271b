"""`python -m services.ingest.replays`: a tenant's jobs as they were at a place in the log, made from it.

Promises: the answer names the places it is the fold of; nothing is written anywhere, least of all where the live
projections are; entries that cannot be folded are counted, not guessed.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from contracts.archive import Archive
from contracts.aside import JsonObject, answer, entries_of
from contracts.errors import Corrupt
from contracts.job import JobState, JobStatus
from contracts.job_fold import evolve
from contracts.wire import Entry

MOST_SHOWN = 500


class Projection:
    """One pool's jobs of one tenant, or one job."""

    def __init__(self, tenant_id: str, job_id: str | None = None) -> None:
        self.position = ""
        self.jobs: dict[str, JobState] = {}
        self.skipped = 0
        self._tenant_id, self._job_id = tenant_id, job_id

    def fold(self, entry: Entry) -> None:
        """Take in the next entry."""
        self.position = entry.position
        try:
            if self._job_id in (None, entry.subject) and (job := self._before(entry)) is not None:
                self.jobs[job.id] = evolve(job, entry)
        except Corrupt:
            self.skipped += 1

    def _before(self, entry: Entry) -> JobState | None:
        if entry.type == "job.created" and entry.raw_data().get("tenantId") == self._tenant_id:
            return JobState(entry.subject)
        return self.jobs.get(entry.subject)


async def project(question: Mapping[str, Any], archive: Archive) -> JsonObject:
    """Fold each pool up to its place. Raises CannotAnswer."""
    pools: dict[str, JsonObject] = {}
    for pool, until in question["pools"].items():
        found = Projection(question["tenantId"], question.get("jobId"))
        async for entry in entries_of(archive, pool, until):
            found.fold(entry)
        pools[pool] = told(found)
    return {"pools": pools}


def told(found: Projection) -> JsonObject:
    """Return what is answered about a pool."""
    newest = sorted(found.jobs, reverse=True)[:MOST_SHOWN]
    counts = Counter(job.status for job in found.jobs.values())
    running = [job.id for job in found.jobs.values() if job.status is JobStatus.IN_PROGRESS]
    return {
        "position": found.position,
        "counts": {status.value: counts[status] for status in JobStatus},
        "running": running[:MOST_SHOWN],
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

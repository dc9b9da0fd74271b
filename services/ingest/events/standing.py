"""How many jobs there were in which state at an instant, and which ran where: a fold of the log up to it. Pure.

Promises: folding a log up to a position gives what was so when that entry was the newest; memory grows with the jobs,
not with the log.
"""

from collections import Counter
from dataclasses import dataclass, field

from contracts.job import TERMINAL, TRANSITIONS, JobStatus
from contracts.positions import entry_ms
from contracts.wire import Entry


@dataclass(slots=True)
class Open:
    """A job that has not ended; `worker_id` while it runs."""

    tenant_id: str
    status: JobStatus
    worker_id: str | None = None
    started_ms: int | None = None


@dataclass(slots=True)
class Standing:
    """The jobs of one tenant in one pool, or all. `position` is that of the last entry folded."""

    tenant_id: str
    position: str = ""
    jobs: dict[str, Open] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    _endings: dict[str, JobStatus] = field(default_factory=dict)

    def fold(self, entry: Entry) -> None:
        """Take in one entry. Raises Corrupt."""
        self.position = entry.position
        job_id = entry.subject
        if entry.type == "job.created":
            if entry.raw_data().get("tenantId") == self.tenant_id:
                self.jobs[job_id] = Open(self.tenant_id, JobStatus.QUEUED)
            return
        if entry.type == "job.retried" and job_id in self._endings:
            self.ended[self._endings.pop(job_id)] -= 1
            self.jobs[job_id] = Open(self.tenant_id, JobStatus.QUEUED)
            return
        job = self.jobs.get(job_id)
        if job is None or (after := TRANSITIONS.get((job.status, entry.type))) is None:
            return
        if entry.type == "job.started":
            worker_id = entry.raw_data().get("workerId")
            job.worker_id = worker_id if isinstance(worker_id, str) else None
            job.started_ms = entry_ms(entry.position)
        elif after is not JobStatus.IN_PROGRESS:
            job.worker_id = job.started_ms = None
        job.status = after
        if after in TERMINAL:
            del self.jobs[job_id]
            self._endings[job_id] = after
            self.ended[after] += 1

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs there were in each state, of all that were ever created."""
        now = Counter(job.status.value for job in self.jobs.values()) + self.ended
        return {status.value: now[status.value] for status in JobStatus}

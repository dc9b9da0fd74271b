"""How jobs stood at an instant, and what they ran on: a fold of a pool's log up to it. Pure.

Promises: folding a log up to a position gives what was so when that entry was the newest; memory grows with the jobs
that are open and the workers that are up, not with the log. A copy stays as it is while the original goes on.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from contracts.job import TERMINAL, TRANSITIONS, JobStatus
from contracts.positions import entry_ms
from contracts.wire import Entry

_GONE = frozenset({"worker.drained", "worker.lost"})
_APPLIED = ("policy", "paused", "pausedModels")


@dataclass(frozen=True, slots=True)
class Open:
    """A job that has not ended; `worker_id` while it runs."""

    tenant_id: str
    model: str
    status: JobStatus
    worker_id: str | None = None
    slot: int | None = None
    started_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is up, as it told."""

    host: str
    pid: int
    version: str
    slots: tuple[dict[str, Any], ...]
    is_draining: bool = False


@dataclass(slots=True)
class Standing:
    """The jobs of one tenant in one pool, or of all with None. `position` is that of the last entry folded."""

    tenant_id: str | None
    position: str = ""
    jobs: dict[str, Open] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    workers: dict[str, Worker] = field(default_factory=dict)
    policy_position: str | None = None  # in the configuration log: what the leader had copied by then
    policy: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)  # of tenants

    def copy(self) -> "Standing":
        """Return the same, to be folded on by itself."""
        return replace(
            self, jobs=dict(self.jobs), ended=self.ended.copy(), workers=dict(self.workers), policy=dict(self.policy),
            rules=dict(self.rules),
        )  # fmt: skip

    def fold(self, entry: Entry, again: Mapping[str, Open] = MappingProxyType({})) -> None:
        """Take in one entry. Raises Corrupt.

        Args:
            again: the tenant's jobs that run again, as they are queued then: what has ended is not kept here.
        """
        self.position = entry.position
        if entry.type.startswith("job."):
            self._fold_job(entry, again)
        elif entry.type.startswith("worker."):
            self._fold_worker(entry)
        elif entry.type == "policy.applied":
            self._fold_policy(entry.raw_data())

    def _fold_job(self, entry: Entry, again: Mapping[str, Open]) -> None:
        job_id, job = entry.subject, self.jobs.get(entry.subject)
        if entry.type == "job.created":
            self._create(job_id, entry.raw_data())
        elif entry.type == "job.retried" and job_id in again:
            self.ended[str(entry.raw_data().get("fromStatus"))] -= 1
            self.jobs[job_id] = again[job_id]
        if job is None or (after := TRANSITIONS.get((job.status, entry.type))) is None:
            return
        if after in TERMINAL:
            del self.jobs[job_id]
            self.ended[after.value] += 1
        elif entry.type == "job.started":
            data = entry.raw_data()
            self.jobs[job_id] = replace(
                job, status=after, worker_id=str(data.get("workerId")), slot=_whole(data.get("slot")),
                started_ms=entry_ms(entry.position),
            )  # fmt: skip
        elif after is not job.status:
            self.jobs[job_id] = Open(job.tenant_id, job.model, after)

    def _create(self, job_id: str, data: dict[str, Any]) -> None:
        tenant_id = str(data.get("tenantId"))
        if self.tenant_id in (None, tenant_id):
            self.jobs[job_id] = Open(tenant_id, str(data.get("model")), JobStatus.QUEUED)

    def _fold_worker(self, entry: Entry) -> None:
        if entry.type in _GONE:
            self.workers.pop(entry.subject, None)
            return
        data, known = entry.raw_data(), self.workers.get(entry.subject)
        slots = data.get("slots")
        if entry.type == "worker.registered":
            self.workers[entry.subject] = Worker(
                str(data.get("host")), _whole(data.get("pid")), str(data.get("version", "")), _parts(slots)
            )
        elif known is not None and entry.type == "worker.changed":
            self.workers[entry.subject] = replace(known, slots=_parts(slots))
        elif known is not None and entry.type == "worker.draining":
            self.workers[entry.subject] = replace(known, is_draining=True)

    def _fold_policy(self, data: dict[str, Any]) -> None:
        self.policy_position = str(data.get("position"))
        self.policy |= {name: data[name] for name in _APPLIED if data.get(name) is not None}
        rules, weights = data.get("tenants") or {}, data.get("weights") or {}
        for tenant_id in {*rules, *weights}:
            known = self.rules.get(tenant_id, {})
            weight = {"weight": weights[tenant_id]} if tenant_id in weights else {}
            self.rules[tenant_id] = known | rules.get(tenant_id, {}) | weight

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs there were in each state, of all that were ever created."""
        now = Counter(job.status.value for job in self.jobs.values()) + self.ended
        return {status.value: now[status.value] for status in JobStatus}

    @property
    def running(self) -> list[tuple[str, Open]]:
        """The jobs that ran, by id."""
        return sorted((job_id, job) for job_id, job in self.jobs.items() if job.worker_id is not None)


def _parts(slots: object) -> tuple[dict[str, Any], ...]:
    return tuple(slot for slot in slots if isinstance(slot, dict)) if isinstance(slots, list) else ()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0

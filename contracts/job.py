"""The job state machine as data, and what a job is once its events are folded.

`TRANSITIONS` is the only copy of the rules: Lua guards sequences, fences and offers and knows no state name. `FIELDS`
names the small fields as the job hash has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from contracts import events as ev


class JobStatus(StrEnum):
    """What the caller sees. Waiting: scheduled, queued. Running: in_progress. The rest is terminal."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


S = JobStatus
TERMINAL: Final = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED, S.EXPIRED})
WAITING: Final = frozenset({S.SCHEDULED, S.QUEUED})

TRANSITIONS: Final[Mapping[tuple[JobStatus | None, str], JobStatus]] = {
    # waiting
    (None, "job.created"): S.QUEUED,  # admitted; the scheduler sees it at once
    (S.QUEUED, "job.scheduled"): S.SCHEDULED,  # in the same call as job.created, when runAt lies ahead
    (S.SCHEDULED, "job.queued"): S.QUEUED,  # its time has come
    (S.QUEUED, "job.queued"): S.QUEUED,  # a retry's delay is over, or an offer's worker gave it back
    (S.QUEUED, "job.assigned"): S.QUEUED,  # an offer is no start: for the caller it still waits
    (S.QUEUED, "job.unassigned"): S.QUEUED,
    (S.SCHEDULED, "job.cancelled"): S.CANCELLED,
    (S.QUEUED, "job.cancelled"): S.CANCELLED,  # also between attempts
    (S.SCHEDULED, "job.expired"): S.EXPIRED,
    (S.QUEUED, "job.expired"): S.EXPIRED,
    (S.QUEUED, "job.failed"): S.FAILED,  # after job.attempt_failed in the same call, when no attempt is left
    (S.SCHEDULED, "job.priority_changed"): S.SCHEDULED,
    (S.QUEUED, "job.priority_changed"): S.QUEUED,
    (S.IN_PROGRESS, "job.priority_changed"): S.IN_PROGRESS,  # counts should it wait again
    (S.SCHEDULED, "job.metadata_changed"): S.SCHEDULED,
    (S.QUEUED, "job.metadata_changed"): S.QUEUED,
    (S.IN_PROGRESS, "job.metadata_changed"): S.IN_PROGRESS,
    (S.SCHEDULED, "job.webhook_changed"): S.SCHEDULED,
    (S.QUEUED, "job.webhook_changed"): S.QUEUED,
    (S.IN_PROGRESS, "job.webhook_changed"): S.IN_PROGRESS,
    # running
    (S.QUEUED, "job.started"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.progress"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.device_released"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.recharged"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.cancel_requested"): S.IN_PROGRESS,  # it stops at its next step, or is killed
    (S.IN_PROGRESS, "job.lease_lost"): S.IN_PROGRESS,  # always followed by job.attempt_failed in the same call
    (S.IN_PROGRESS, "job.attempt_failed"): S.QUEUED,  # waits for its delay, or fails in the same call
    (S.IN_PROGRESS, "job.queued"): S.QUEUED,  # handed back or rate limited: the attempt does not count
    (S.IN_PROGRESS, "job.completed"): S.COMPLETED,
    (S.IN_PROGRESS, "job.cancelled"): S.CANCELLED,
    # a milestone of the author changes nothing but the log
    **{(S.IN_PROGRESS, milestone): S.IN_PROGRESS for milestone in sorted(ev.MILESTONES)},
    # terminal: left only by a new run
    (S.FAILED, "job.dead_lettered"): S.FAILED,
    (S.FAILED, "job.redriven"): S.FAILED,  # always followed by job.retried in the same call
    (S.FAILED, "job.discarded"): S.FAILED,  # no dead letter any more
    **{(ended, "job.retried"): S.QUEUED for ended in (S.FAILED, S.CANCELLED, S.EXPIRED)},
    **{(ended, "job.erased"): ended for ended in TERMINAL},  # its content is gone, what happened is not
    **{(ended, "job.forgotten"): ended for ended in TERMINAL},  # the last event of all
    # the trace of a refused late write may follow anything
    **{(status, "job.event_rejected"): status for status in S},
}

# attribute of JobState -> field of the job hash; short because a million waiting jobs pay for each letter
FIELDS: Final[Mapping[str, str]] = {
    "status": "s",
    "fence": "f",
    "attempt": "a",
    "run": "r",
    "tenant_id": "t",
    "model": "m",
    "priority": "pr",
    "max_attempts": "ma",
    "timeout_ms": "xt",
    "created_ms": "c",
    "body_bytes": "u",
    "hooked": "h",
    "not_before_ms": "nb",
    "start_by_at_ms": "sb",
    "worker_id": "w",
    "slot": "sl",
    "offer_id": "of",
    "queued_ms": "q",
    "started_ms": "sa",
    "progress": "pg",
    "step": "st",
    "total_steps": "ts",
    "phase": "ph",
    "cancel_requested_ms": "cr",
    "done_ms": "da",
    "error_code": "ec",
    "dead_lettered": "dl",
    "dedup_hash": "dd",
    "erased_ms": "er",
}


@dataclass(frozen=True, slots=True)
class JobState:
    """A job folded to `sequence`. The fields above FIELDS are small and live in the hash; the last two do not."""

    id: str
    sequence: int = 0
    position: str = ""
    status: JobStatus | None = None
    fence: int = 0
    attempt: int = 0
    run: int = 0
    tenant_id: str = ""
    model: str = ""
    priority: str = "normal"
    max_attempts: int = 3
    timeout_ms: int = 0
    created_ms: int = 0
    body_bytes: int = 0
    hooked: str | None = None
    not_before_ms: int | None = None
    start_by_at_ms: int | None = None
    worker_id: str | None = None
    slot: int | None = None
    offer_id: str | None = None
    queued_ms: int | None = None
    started_ms: int | None = None
    progress: float = 0.0
    step: int | None = None
    total_steps: int | None = None
    phase: str | None = None
    cancel_requested_ms: int | None = None
    done_ms: int | None = None
    error_code: str | None = None
    dead_lettered: str | None = None
    dedup_hash: str | None = None
    erased_ms: int | None = None
    offers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    artifacts: tuple[ev.ArtifactRef, ...] = ()
    timings: ev.Timings = ev.Timings()

    @property
    def terminal(self) -> bool:
        """Whether this run of the job has ended."""
        return self.status in TERMINAL


def legal(status: JobStatus | None, event_type: str) -> bool:
    """Whether an event of this type may follow a job with this status."""
    return (status, event_type) in TRANSITIONS

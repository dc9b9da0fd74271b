"""What may be forgotten, and up to where the log may be trimmed. Pure.

A job may go when its run ended, its retention is over, and the notifier has planned all it will ever plan for it.
The log may be trimmed below the first event of the oldest job still kept, below what the notifier still needs, and
below the newest snapshot, since the fold starts there. All three are positions that only move forward.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from contracts.job import JobStatus
from contracts.positions import START, entry_key
from services.scheduler.fold.records import Job
from services.scheduler.fold.state import PoolState


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ended jobs are kept, in ms."""

    completed_ms: int
    failed_ms: int  # also cancelled and expired ones

    def of(self, status: JobStatus) -> int:
        """Return how long a job that ended so is kept."""
        return self.completed_ms if status is JobStatus.COMPLETED else self.failed_ms


def forgettable(state: PoolState, retention: Retention, now_ms: int, needed_from: str, limit: int) -> list[Job]:
    """Return up to `limit` jobs that may be forgotten now, in the order in which they ended.

    Args:
        needed_from: the first position that the notifier may still need.
    """
    found: list[Job] = []
    for status, queue in state.ended.items():
        for job in _ended(state, status, limit - len(found)):
            if job.ended_ms + retention.of(status) > now_ms or entry_key(job.last) >= entry_key(needed_from):
                break  # the next ones ended later
            found += [] if job.aside else [job]
        while queue and not _still(state, status, queue[0]):
            queue.popleft()
    return found


def trim_below(state: PoolState, needed_from: str, snapshot: str) -> str:
    """Return the position below which nothing is needed any more; START: trim nothing."""
    oldest = state.oldest_kept()
    bounds = [needed_from, snapshot, oldest if oldest is not None else state.position]
    return min(bounds, key=entry_key) if all(bounds) else START


def _ended(state: PoolState, status: JobStatus, limit: int) -> Iterator[Job]:
    for count, item in enumerate(state.ended[status]):
        if count >= 2 * limit:  # those in between that were forgotten or retried are few
            return
        if _still(state, status, item):
            yield state.jobs[item[0]]


def _still(state: PoolState, status: JobStatus, item: tuple[str, int]) -> bool:
    job = state.jobs.get(item[0])
    return job is not None and job.status is status and job.run == item[1]

"""When something is due: heaps derived from the fold, so that a new leader has the same timers as the old one.

An entry counts only while the job still says the same; the rest is dropped when it comes to the top. What is due stays
due until the entry that answers it is read back. `due` costs what it returns, however many wait.
"""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush

from contracts.job import WAITING, JobStatus
from services.scheduler.fold.records import Job


class Clock(IntEnum):
    """Which clock ran out."""

    QUEUE = 0  # run-at, the delay of a retry, the pause after a decline
    START_BY = 1
    RUN_FOR = 2
    RECHARGE = 3  # it runs for twice what it is charged
    LIMITED = 4  # a provider says "not now" over and over


LEAST_EXCESS_MS = 2_000  # a run shorter than this is never worth another entry
Dues = tuple[int | None, int | None, int | None, int | None, int | None]  # for each clock
_NOTHING: Dues = (None, None, None, None, None)


class Timers:
    """The timers of all jobs of a pool, one heap for each clock."""

    def __init__(self) -> None:
        self._heaps: list[list[tuple[int, str]]] = [[] for _ in Clock]
        self._noted: dict[str, Dues] = {}  # only of jobs with a clock that runs

    def watch(self, job: Job) -> None:
        """Note what the job is now waiting for; call it after every change of the job."""
        dues = dues_ms(job)
        before = self._noted.get(job.id, _NOTHING)
        if dues == before:
            return
        if dues == _NOTHING:
            del self._noted[job.id]
            return
        self._noted[job.id] = dues
        for clock, at_ms in enumerate(dues):
            if at_ms is not None and at_ms != before[clock]:
                heappush(self._heaps[clock], (at_ms, job.id))

    def due(self, clock: Clock, now_ms: int, find: Callable[[str], Job | None], limit: int) -> list[Job]:
        """Return up to `limit` jobs whose clock has run out at `now_ms`, earliest first."""
        heap = self._heaps[clock]
        found: list[Job] = []
        kept: list[tuple[int, str]] = []
        seen: set[str] = set()
        while heap and heap[0][0] <= now_ms and len(found) < limit:
            at_ms, job_id = heappop(heap)
            job = find(job_id)
            if job is not None and dues_ms(job)[clock] == at_ms and job_id not in seen:
                seen.add(job_id)
                found.append(job)
                kept.append((at_ms, job_id))
        for entry in kept:
            heappush(heap, entry)
        return found

    def next_ms(self, clock: Clock, find: Callable[[str], Job | None]) -> int | None:
        """Return when the next job is due, None when none waits for this clock."""
        heap = self._heaps[clock]
        while heap:
            at_ms, job_id = heap[0]
            job = find(job_id)
            if job is not None and dues_ms(job)[clock] == at_ms:
                return at_ms
            heappop(heap)
        return None


def dues_ms(job: Job) -> Dues:
    """Return when each clock of the job runs out; None for those that do not run."""
    if job.ending or job.aside:
        return _NOTHING
    if job.status in WAITING:
        limited_since_ms = None if job.cancel_requested else job.limited_since_ms
        return job.not_before_ms, job.start_by_at_ms, None, None, limited_since_ms
    if job.status is not JobStatus.IN_PROGRESS or not job.on_device:
        return _NOTHING
    recharge_ms = max(LEAST_EXCESS_MS, 2 * job.charged_ms * job.sharers)
    return None, None, job.runs_from_ms + job.timeout_ms, job.started_ms + recharge_ms if job.is_charged else None, None

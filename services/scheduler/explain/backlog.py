"""What waits in a pool, and how many workers it is worth. Pure.

Only what could run if there were a slot counts: nothing that waits for its time, a pause, a budget or an external
limit, and of a tenant no more at once than its cap. A model that no worker serves counts, since one that does would run
it: so a pool may grow from no worker at all.
"""

from collections.abc import Mapping
from math import ceil

from contracts.job import WAITING
from contracts.questions import Backlog
from services.scheduler.explain.facts import Facts
from services.scheduler.explain.line import sampled
from services.scheduler.explain.moment import Moment

LOOK_EVERY_MS = 500
_LOOKED_AT = 4  # first entries of a line; those that count no more are left there for a while


class Oldest:
    """The job that has waited longest. Of very many tenants a part is looked at each time."""

    def __init__(self, *, on_decks: bool) -> None:
        self._on_decks = on_decks  # those handed to workers count as well
        self._job_id = ""
        self._turn = 0

    def job_id(self, moment: Moment) -> str | None:
        """Return the oldest known waiting job; None: nothing waits."""
        policy, jobs = moment.state.policy, moment.state.jobs
        decks = (seat.place.slot.deck_offers.values() for seat in moment.seats.all if self._on_decks)
        found = {job_id for deck in decks for job_id in deck}
        self._turn += 1
        for tenant in sampled(policy.ledger.tenants, self._turn)[0]:
            for lane in (lane for shelf in tenant.shelves.values() for lane in shelf.lanes):
                found.update(job.job_id for job in lane.heap[:_LOOKED_AT] if policy.waiting(job.job_id) is job)
        waiting = (jobs[each] for each in (*found, self._job_id) if each in jobs and jobs[each].status in WAITING)
        counting = ((job.queued_ms, job.id) for job in waiting if self._on_decks or not job.offers)
        oldest = min(counting, default=None)
        self._job_id = "" if oldest is None else oldest[1]
        return self._job_id or None


class Idleness:
    """Slot time that was idle while jobs waited, by the reason of those that could have used it."""

    def __init__(self) -> None:
        self.ms: dict[str, int] = {}
        self._seen_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to look again."""
        return self._seen_ms is None or now_ms - self._seen_ms >= LOOK_EVERY_MS

    def note(self, now_ms: int, idle_slots: int, reason: str | None) -> None:
        """Count the time since the last note for what holds now; None: nothing waits, or nothing is idle."""
        before_ms, self._seen_ms = self._seen_ms, now_ms
        if before_ms is not None and reason is not None and idle_slots:
            self.ms[reason] = self.ms.get(reason, 0) + idle_slots * max(0, now_ms - before_ms)


def backlog(
    moment: Moment, facts: Facts, target_ms: int, idle_ms: Mapping[str, int], oldest_id: str | None
) -> Backlog:  # fmt: skip
    """Return what waits, and how many workers would do it in `target_ms` (at least one where anything waits)."""
    state = moment.state
    workers = [worker for worker in state.workers.values() if not worker.draining]
    slots = len(moment.seats.all)
    busy = {seat.place.worker.id for seat in moment.seats.all if not seat.place.is_idle or seat.place.slot.deck}
    oldest = state.jobs.get(oldest_id or "")
    oldest_ms = 0 if oldest is None else max(0, moment.now_ms - oldest.queued_ms)
    longest_ms = _longest_ms(moment)
    if facts.pool_paused_ms is not None:
        return Backlog(0, 0, oldest_ms, len(busy), longest_ms, dict(idle_ms))
    jobs, work_ms, useful = _work(moment)
    each = max(1, slots // max(1, len(workers)))  # slots of a usual worker
    running_ms = sum(seat.free_in_ms for seat in moment.seats.all)
    running = sum(not seat.place.is_idle for seat in moment.seats.all)
    wanted = min(ceil((work_ms + running_ms) / max(1, target_ms)), useful + running)
    desired = max(len(busy), ceil(wanted / each), 1 if jobs else 0)
    return Backlog(jobs, work_ms, oldest_ms, desired, longest_ms, dict(idle_ms))


def _longest_ms(moment: Moment) -> int:
    """Return how long the attempt that has run longest has been running."""
    running = (job_id for seat in moment.seats.all for job_id in seat.place.slot.running_jobs)
    started = (moment.state.jobs[job_id].started_ms for job_id in running if job_id in moment.state.jobs)
    return max(0, moment.now_ms - min(started, default=moment.now_ms))


def _work(moment: Moment) -> tuple[int, int, int]:
    """Return jobs, their device ms, and how many could run at once."""
    policy, run_ms = moment.state.policy, moment.state.estimates.run_ms
    jobs = work_ms = 0
    for domain in policy.boards.all_domains():
        for board in domain.classes if domain.is_open(policy.tokens) else ():
            jobs += board.count
            work_ms += board.count * run_ms(board.job_class.model, board.job_class.bucket)
    for tenant_id in policy.ledger.parked:
        parked = policy.ledger.tenants.get(tenant_id)
        for shelf in parked.shelves.values() if parked is not None else ():
            if shelf.board.domain.is_open(policy.tokens) and not shelf.board.domain.paused:
                count = sum(lane.count for lane in shelf.lanes)
                jobs -= count
                work_ms -= count * run_ms(shelf.board.job_class.model, shelf.board.job_class.bucket)
    sample, step = sampled(policy.ledger.tenants, 0)
    useful = sum(min(tenant.waiting, max(0, tenant.rule.cap - tenant.in_flight)) for tenant in sample)
    return jobs, work_ms, min(jobs, useful * step)

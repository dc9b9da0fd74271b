"""The pool at one moment, as far as questions need it; made anew when the moment is over. Pure."""

from functools import cache

from services.scheduler.explain.line import Meets, Rival, rivals_of
from services.scheduler.explain.seats import Seats, share
from services.scheduler.fold.lines import JobClass
from services.scheduler.fold.state import PoolState

SMALL = 64  # tenants: a pool of so many is looked at for every question
Resources = tuple[tuple[str, int], ...]
LONGEST_MS = 250  # for how long a larger pool is taken to be as it was


class Moment:
    """What several questions share."""

    def __init__(self, state: PoolState, now_ms: int) -> None:
        self.state, self.now_ms, self.position = state, now_ms, state.position
        self.seats = Seats(state.workers.values(), state.jobs, now_ms)
        self._rivals: dict[tuple[int, Resources], list[Rival]] = {}
        self._in_flight: dict[str, list[tuple[str, int, int]]] | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether another one is needed."""
        if now_ms == self.now_ms and self.position == self.state.position:
            return False
        return len(self.state.policy.ledger.tenants) <= SMALL or now_ms - self.now_ms >= LONGEST_MS

    def meets(self, chosen: int, resources: Resources) -> Meets:
        """Return how much of a class meets a job that wants these slots and external limits, and the estimate of one.

        What waits for another external limit than the job itself goes before nobody as things stand.
        """
        policy, run_ms = self.state.policy, self.state.estimates.run_ms
        same = {name for name, _ in resources}

        @cache
        def of(job_class: JobClass) -> tuple[float, int]:
            closed = (name for name, units in job_class.resources if policy.tokens.get(name, 0) < units)
            if policy.boards.is_paused(job_class.model) or any(name not in same for name in closed):
                return 0.0, 0
            return share(chosen, self.seats.holding(job_class)), run_ms(job_class.model, job_class.bucket)

        return of

    def rivals(self, chosen: int, resources: Resources) -> list[Rival]:
        """Return all tenants that wait, with their work that meets a job that wants these slots and limits."""
        key = (chosen, resources)
        if key not in self._rivals:
            self._rivals[key] = rivals_of(self.state.policy.ledger.tenants, self.meets(chosen, resources))
        return self._rivals[key]

    def in_flight(self, tenant_id: str) -> list[tuple[str, int, int]]:
        """Return user, time until its slot is free, and start (0: not yet) of each job of the tenant that holds one."""
        if self._in_flight is None:
            self._in_flight = {}
            for seat in self.seats.all:
                slot = seat.place.slot
                for job_id in (*slot.running_jobs, *slot.deck_offers.values()):
                    job = self.state.jobs.get(job_id)
                    if job is not None:
                        row = (job.user, seat.free_in_ms, job.started_ms)
                        self._in_flight.setdefault(job.tenant_id, []).append(row)
        return self._in_flight.get(tenant_id, [])

    def on_decks(self, chosen: int) -> int:
        """Return how many jobs lie on the decks of these slots, each once."""
        found = {job_id for seat in self.seats.of(chosen) for job_id in seat.place.slot.deck_offers.values()}
        jobs = (self.state.jobs.get(job_id) for job_id in found)
        return sum(job is not None and bool(job.offers) for job in jobs)

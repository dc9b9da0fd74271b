"""Where one job stands: what goes before it, and when it should start. Pure."""

from dataclasses import dataclass, field

from contracts.job import WAITING
from services.scheduler.explain.fluid import Demand, start_after, work_before
from services.scheduler.explain.line import Work, own_before, total
from services.scheduler.explain.moment import Moment
from services.scheduler.explain.seats import Seat
from services.scheduler.fold.accounts import NO_CAP, TIERS, Rule, Tenant
from services.scheduler.fold.eligible import class_of
from services.scheduler.fold.ledger import SCALE
from services.scheduler.fold.lines import JobClass, key_of
from services.scheduler.fold.records import Job


@dataclass(slots=True)
class Standing:
    """A waiting job among all others. `higher`: of its tenant, more pressing; `earlier`: of its tenant, same band."""

    job: Job
    job_class: JobClass
    seats: list[Seat]  # that could ever hold it
    chosen: int
    rule: Rule
    higher: Work = field(default_factory=Work)
    earlier: Work = field(default_factory=Work)
    others: Work = field(default_factory=Work)
    on_decks: int = 0
    start_in_ms: int = 0  # if nothing but work stood in its way

    @property
    def ahead(self) -> int:
        """Jobs that would be served before it."""
        return self.on_decks + round(self.higher.jobs + self.earlier.jobs) + round(self.others.jobs)


def standing(moment: Moment, job: Job) -> Standing | None:
    """Return where a job stands; None when it does not wait."""
    if job.status not in WAITING or job.ending:
        return None
    job_class = class_of(job)
    chosen = moment.seats.holding(job_class)
    policy = moment.state.policy
    rule = policy.rules.get(job.tenant_id, Rule())
    found = Standing(job, job_class, moment.seats.of(chosen), chosen, rule)
    if job.offers:
        on = {(offer.worker_id, offer.slot) for offer in job.offers.values()}
        free_in_ms = [s.free_in_ms for s in moment.seats.all if (s.place.worker.id, s.place.slot.index) in on]
        own_ms = min(offer.est_ms for offer in job.offers.values())
        found.start_in_ms = max(0, min(free_in_ms, default=0) - own_ms)
        return found
    _stand_in_line(moment, found, policy.ledger.tenants.get(job.tenant_id))
    return found


def _stand_in_line(moment: Moment, found: Standing, tenant: Tenant | None) -> None:
    job, policy, meets = found.job, moment.state.policy, moment.meets(found.chosen, found.job_class.resources)
    if tenant is not None:
        key = key_of(job.band, job.order)
        found.higher, found.earlier = own_before(tenant, job.user, job.band, key, policy.waiting, meets)
    own_ms = found.higher.ms + found.earlier.ms
    start_v = policy.ledger.now() if tenant is None or not tenant.waiting else tenant.v
    until_v = start_v + own_ms * SCALE * 1000 / found.rule.weight_milli
    all_rivals = moment.rivals(found.chosen, found.job_class.resources)
    rivals = [rival for rival in all_rivals if rival.tenant_id != job.tenant_id]
    found.on_decks = moment.on_decks(found.chosen)
    floors: dict[str, float] = {
        name: milli / 1000 for name, milli in zip(TIERS, policy.knobs.floors_milli, strict=True)
    }
    pending: dict[str, float] = {}
    for rival in rivals:
        pending[rival.tier] = pending.get(rival.tier, 0.0) + rival.ms * rival.tenants
    free_in_ms = [seat.free_in_ms for seat in found.seats] or [0]
    within_ms: float | None = None
    for _ in range(2):  # what a capped tenant can be served depends on how long that takes
        found.others, owed_ms = total(rivals, until_v, within_ms)
        demand = Demand(own_ms, owed_ms, pending)
        before_ms = work_before(demand, TIERS[found.rule.tier], floors)
        jobs = found.higher.jobs + found.earlier.jobs + found.others.jobs
        within_ms = start_after(jobs, before_ms, free_in_ms)
    found.start_in_ms = round(max(within_ms or 0, _capped_ms(moment, found, own_ms)))


def _capped_ms(moment: Moment, found: Standing, own_ms: float) -> float:
    """Return when the tenant, and the user, may have one more job."""
    cap, user_cap = found.rule.cap, found.rule.user_cap
    if cap == NO_CAP and user_cap == NO_CAP:
        return 0
    running = moment.in_flight(found.job.tenant_id)
    of_user = [row for row in running if row[0] == found.job.user]
    jobs = found.higher.jobs + found.earlier.jobs
    return max(_one_more_ms(running, cap, jobs, own_ms), _one_more_ms(of_user, user_cap, 0, 0))


def _one_more_ms(running: list[tuple[str, int, int]], cap: int, jobs: float, own_ms: float) -> float:
    if cap == NO_CAP or not cap:
        return 0
    free_in_ms = sorted((row[1] for row in running), reverse=True)[:cap]
    return start_after(jobs, own_ms, [*free_in_ms, *([0] * min(64, cap - len(free_in_ms)))])

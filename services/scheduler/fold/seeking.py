"""What may go before the fair job of a place: a warm model, a near deadline, what fits while it does not. Pure.

A preference may pick another tenant only inside the lead, and inside a tenant only as `inside` allows.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from services.scheduler.fold.accounts import Tenant
from services.scheduler.fold.boards import ClassBoard, Shelf
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.inside import best_on, fair_job, only_band, survey
from services.scheduler.fold.ledger import SCALE
from services.scheduler.fold.lines import Waiting
from services.scheduler.fold.placement import Place
from services.scheduler.fold.scratch import Fair, Scratch

LEAD_IN_LOADS = 4  # of the fair job's model; where nothing is known of it, the fair job goes first
_MOST_DEADLINES = 16  # looked at for one place


def departure(scratch: Scratch, fair: Fair, place: Place) -> Choice | None:
    """Choose a job whose deadline is near, or whose model is there, of a tenant within the lead."""
    job = _pressed(scratch, fair, place)
    if job is not None:
        return scratch.offer(fair, job, place, "deadline")
    warm = (board for model in place.slot.resident for board in scratch.boards.of_model(model))
    classes = [board for board in warm if board.count and not board.job_class.alone]
    most_v = fair.anchor.v + _lead_for(scratch, fair.job)
    job = _best_of(scratch, fair, classes, place, most_v)
    return None if job is None else scratch.offer(fair, job, place, "warm", most_v)


def inside_lead(scratch: Scratch, fair: Fair, place: Place, most_v: int) -> Choice | None:
    """Choose what fits while the fair job does not, of a tenant within the lead."""
    classes = [board for domain in fair.domains for board in domain.classes]
    job = _best_of(scratch, fair, classes, place, most_v)
    return None if job is None else scratch.offer(fair, job, place, "fit", most_v)


def _lead_for(scratch: Scratch, job: Waiting) -> int:
    """Return how far a warm job may lead this one: never so far that it costs others much more than a load saves."""
    return min(scratch.knobs.lead, LEAD_IN_LOADS * scratch.estimates.load_ms(job.job_class.model) * SCALE)


def _best_of(scratch: Scratch, fair: Fair, classes: Sequence[ClassBoard], place: Place, most_v: int) -> Waiting | None:
    best: tuple[int, str, int, Waiting] | None = None
    for board in classes:
        if board.domain not in fair.domains or not scratch.may_hold(place, board.job_class):
            continue
        for tier in fair.tiers:
            if not board.heaps[tier]:
                continue
            limit_v = most_v if best is None else min(most_v, best[0])
            found = _first_in(scratch, fair, board, tier, limit_v)
            best = found if found is not None and (best is None or found < best) else best
    return None if best is None else best[3]


def next_of_class(scratch: Scratch, fair: Fair, board: ClassBoard, most_v: int) -> Waiting | None:
    """Return the next job of one class in fair order, of a tenant up to `most_v`; what was taken counts no more."""
    candidates = [_first_in(scratch, fair, board, tier, most_v) for tier in fair.tiers if board.heaps[tier]]
    best = min((found for found in candidates if found is not None), default=None)
    return None if best is None else best[3]


def _first_in(scratch: Scratch, fair: Fair, board: ClassBoard, tier: int, most_v: int
) -> tuple[int, str, int, Waiting] | None:  # fmt: skip
    for tenant, shelf in scratch.boards.in_class(board, tier, most_v, scratch.view):
        candidate = _candidate(scratch, fair, tenant, shelf)
        if candidate is not None:
            return tenant.v, tenant.id, *candidate
    return None


def _candidate(scratch: Scratch, fair: Fair, tenant: Tenant, shelf: Shelf) -> tuple[int, Waiting] | None:
    """Return the tenant's best job of the class, if its own fair job lets it go first."""
    band = only_band(tenant, shelf, scratch.knobs.bypass_ms)
    if band is not None:
        return best_on(tenant, shelf, band, scratch.view)
    found = fair.found if tenant is fair.anchor else survey(tenant, fair.domains, scratch.view)
    if not found:
        return None
    first, due = fair_job(tenant, found, scratch.knobs.bypass_ms)
    if due:
        return (tenant.users[first.user].v, first) if first.job_class == shelf.board.job_class else None
    return best_on(tenant, shelf, first.band, scratch.view)


def _pressed(scratch: Scratch, fair: Fair, place: Place) -> Waiting | None:
    """Return a job that would not start in time if the device were given to the fair job now."""
    margin_ms = scratch.knobs.deck_lead_ms + scratch.cost_ms(fair.job.job_class, place) // max(1, len(scratch.room.all))
    for tier in fair.tiers:
        for at_ms, job in _deadlines_of(scratch, tier):
            if at_ms > scratch.now_ms + margin_ms:
                break
            if _may_be_pressed(scratch, fair, job, place):
                return job
    return None


def _deadlines_of(scratch: Scratch, tier: int) -> Iterator[tuple[int, Waiting]]:
    heap = scratch.deadlines[tier]
    passed: list[tuple[int, Waiting]] = []
    try:
        while heap and len(passed) < _MOST_DEADLINES:
            at_ms, job = heap[0]
            if scratch.view.live.get(job.job_id) is not job:
                heappop(heap)
                continue
            passed.append(heappop(heap))
            if at_ms > scratch.now_ms and job.job_id not in scratch.view.taken:
                yield at_ms, job
    finally:
        for entry in passed:
            heappush(heap, entry)


def _may_be_pressed(scratch: Scratch, fair: Fair, job: Waiting, place: Place) -> bool:
    tenant = scratch.ledger.tenants[job.tenant_id]
    board = scratch.boards.of(job.job_class)
    user = tenant.users[job.user]
    if tenant.v > fair.anchor.v + scratch.knobs.lead or tenant.rule.tier not in fair.tiers or tenant.parked:
        return False
    if tenant.in_flight >= tenant.rule.cap or user.in_flight >= tenant.rule.user_cap:
        return False
    if board.domain not in fair.domains or not scratch.may_hold(place, job.job_class):
        return False
    found = fair.found if tenant is fair.anchor else survey(tenant, fair.domains, scratch.view)
    first, due = fair_job(tenant, found, scratch.knobs.bypass_ms) if found else (job, False)
    return job is first or (job.band == first.band and not due)

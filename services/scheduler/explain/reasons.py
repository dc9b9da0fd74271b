"""Why a waiting job does not start now, in the order in which it matters, each with what would have to change. Pure.

Says nothing of other tenants but how many of their jobs go first.
"""

from collections.abc import Callable, Iterator

from contracts.job import JobStatus
from contracts.questions import Reason
from services.scheduler.explain.facts import Facts, closed_until_ms
from services.scheduler.explain.moment import Moment
from services.scheduler.explain.standing import Standing
from services.scheduler.explain.words import clock_text, duration_text, jobs_text, size_text
from services.scheduler.fold.accounts import NO_CAP

Why = Callable[[Moment, Facts, Standing], Reason | None]


def reasons(moment: Moment, facts: Facts, found: Standing) -> list[Reason]:
    """Return all reasons that hold now; none for a job that is about to be offered."""
    blocks = [reason for why in _BLOCKS if (reason := why(moment, facts, found)) is not None]
    return blocks + list(_in_line(moment, found))


def _aside(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    if not found.job.aside:
        return None
    text = (
        "The scheduler set it aside, as a decision about it was refused without a reason. An operator must repair it."
    )
    return Reason("set_aside", text)


def _later(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    job, at_ms = found.job, found.job.not_before_ms
    if at_ms is None:
        return None
    at, since_ms = clock_text(at_ms), job.queued_ms
    if job.status is JobStatus.SCHEDULED:
        return Reason("not_before", f"It was submitted to start at {at} at the earliest.", since_ms)
    if facts.is_limited(job):
        text = f"A provider it calls said: too often. The job is offered again at {at}; no attempt was used."
        return Reason("rate_limited", text, since_ms)
    if job.declines:
        text = (
            f"A worker gave it back (for the {job.declines}. time). It is offered again at {at}; no attempt was used."
        )
        return Reason("backoff", text, since_ms)
    where = ", on a GPU for itself" if job.alone else ""
    text = f"Attempt {job.attempt} of {job.max_attempts} failed. It is tried again at {at}{where}."
    return Reason("backoff", text, since_ms)


def _pool_paused(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    if facts.pool_paused_ms is None:
        return None
    return Reason("pool_paused", "The pool is paused. An operator must resume it.", facts.pool_paused_ms)


def _tenant_paused(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    since_ms = facts.tenant_paused_ms(found.job.tenant_id)
    if since_ms is None:
        return None
    return Reason("tenant_paused", "The tenant is paused. An operator must resume it.", since_ms)


def _model_paused(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    since_ms = facts.model_paused_ms(found.job.model)
    if since_ms is None:
        return None
    return Reason("model_paused", f"The model {found.job.model} is paused. An operator must resume it.", since_ms)


def _budget(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    budget = facts.budget(found.job.tenant_id, moment.now_ms)
    if not budget.is_exhausted:
        return None
    text = (
        f"The tenant has used {budget.used_ms // 1000} of its {(budget.limit_ms or 0) // 1000} GPU-seconds of today in "
        f"this pool. It goes on at {clock_text(budget.resets_at_ms)}, or when an operator raises the limit."
    )
    return Reason("budget_exhausted", text, budget.since_ms)


def _no_worker(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    if found.chosen:
        return None
    job, workers = found.job, [worker for worker in moment.state.workers.values() if not worker.draining]
    serving = [worker for worker in workers if worker.serves(job.model)]
    if not serving:
        there = f"None of the {len(workers)} workers of the pool serves" if workers else "The pool has no worker for"
        return Reason("no_worker_with_model", f"{there} {job.model}. A worker that does must join.", job.queued_ms)
    slots = [slot for worker in serving for slot in worker.slots.values()]
    largest = max((slot.bytes for slot in slots), default=0)
    fits = max((slot for slot in slots if slot.total_bytes >= job.bytes), key=lambda slot: slot.bytes, default=None)
    if fits is not None and fits.bytes < fits.total_bytes:
        free = f"{size_text(fits.bytes)} free of {size_text(fits.total_bytes)}, {size_text(job.bytes)} needed"
        text = f"gpu memory: {free}. Other programs or pinned models hold the rest; it starts when they let go of it."
        return Reason("insufficient_vram", text, job.queued_ms)
    text = (
        f"It needs {size_text(job.bytes)}; no GPU has enough memory, the largest one for {job.model} offers "
        f"{size_text(largest)}. A larger one must join."
    )
    return Reason("insufficient_vram", text, job.queued_ms)


def _memory_taken(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    idle = [seat.place for seat in found.seats if seat.place.is_idle and seat.place.slot.deck is None]
    if not idle or found.job.offers or any(place.can_hold(found.job_class) for place in idle):
        return None
    held = "They must end first; nothing new is put there while it is this job's turn."
    if found.job_class.claim:
        size = size_text(found.job.bytes)
        text = f"It needs {size}; where a slot is free, jobs beside it hold too much of the GPU's memory. {held}"
    else:
        text = f"It gets a GPU for itself: {_why_alone(found)}. Where a slot is free, jobs beside it still run. {held}"
    return Reason("insufficient_vram", text, found.job.queued_ms)


def _why_alone(found: Standing) -> str:
    if not found.job.alone:
        return f"nobody has measured what {found.job.model} needs"
    return "it ran out of memory, or asks for more than was ever measured"


def _concurrency(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    cap, running = found.rule.cap, facts.in_flight(found.job.tenant_id)
    if found.job.offers or cap == NO_CAP or running < cap:
        return None
    return Reason("tenant_concurrency", _full("The tenant", running, cap), _since(moment, found, None))


def _user_concurrency(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    cap, user = found.rule.user_cap, found.job.user
    running = facts.in_flight(found.job.tenant_id, user)
    if found.job.offers or cap == NO_CAP or running < cap:
        return None
    return Reason("user_concurrency", _full("Its user", running, cap), _since(moment, found, user))


def _full(whose: str, running: int, cap: int) -> str:
    held = f"{whose} has {jobs_text(running)} in flight in this pool and may have {cap}."
    return f"{held} One must end, or an operator raise the limit."


def _resources(moment: Moment, facts: Facts, found: Standing) -> Reason | None:
    for name, units in found.job_class.resources:
        limit = facts.resource(name)
        if found.job.offers or limit is None or limit.tokens >= units:
            continue
        if closed_until_ms(limit) > moment.now_ms:
            at = clock_text(closed_until_ms(limit))
            text = f"The provider of {name} said: too often. Nothing that calls it starts before {at}."
            return Reason("rate_limited", text, found.job.queued_ms)
        rate = f"{limit.rate} in {duration_text(limit.window_ms)}, over all workers"
        text = f"All starts that may call {name} are used ({rate}). The next ones come by themselves."
        return Reason("rate_limited", text, found.job.queued_ms)
    return None


_BLOCKS: tuple[Why, ...] = (
    _aside, _later, _pool_paused, _tenant_paused, _model_paused, _budget, _no_worker, _concurrency, _user_concurrency,
    _resources, _memory_taken,
)  # fmt: skip


def _in_line(moment: Moment, found: Standing) -> Iterator[Reason]:
    job = found.job
    if job.offers:
        yield _on_deck(moment, found)
        return
    if job.not_before_ms is not None or job.aside:
        return
    higher, earlier, others = round(found.higher.jobs), round(found.earlier.jobs), round(found.others.jobs)
    if higher:
        text = (
            f"{jobs_text(higher)} of this tenant with a higher priority go first. Raise its priority, or wait for them."
        )
        yield Reason("behind_higher_priority", text, job.queued_ms)
    if earlier or others or found.on_decks:
        parts = [
            (earlier, "of this tenant that came earlier"), (others, "of other tenants that are owed their share first"),
            (found.on_decks, "handed to workers already"),
        ]  # fmt: skip
        text = ", ".join(f"{count} {whose}" for count, whose in parts if count)
        yield Reason(
            "fair_share", f"Before it go {text}. It is served when they are, or sooner on more slots.", job.queued_ms
        )
    elif not higher and found.chosen and not any(seat.free_in_ms == 0 for seat in found.seats):
        first = duration_text(min(seat.free_in_ms for seat in found.seats))
        text = f"It is next: the slots it fits ({len(found.seats)}) are busy, the first should be free in {first}."
        yield Reason("fair_share", text, job.queued_ms)


def _on_deck(moment: Moment, found: Standing) -> Reason:
    job, offer = found.job, next(iter(found.job.offers.values()))
    if offer.hold_until_ms is not None:
        text = (
            f"It is held for {offer.worker_id}, which has {job.model} loaded and should be free before another one "
            f"could load it; from {clock_text(offer.hold_until_ms)} on it goes wherever there is room."
        )
        return Reason("warm_hold", text, job.queued_ms)
    text = f"It is next: handed to {offer.worker_id}, and starts there when what runs is over."
    return Reason("fair_share", text, job.queued_ms)


def _since(moment: Moment, found: Standing, user: str | None) -> int:
    """The newest start of those that fill the limit: from then on it was full, or from when the job began to wait."""
    rows = moment.in_flight(found.job.tenant_id)
    starts = [started_ms for name, _, started_ms in rows if user in (None, name)]
    return max([found.job.queued_ms, *starts])

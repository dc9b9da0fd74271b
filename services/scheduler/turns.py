"""What the leader does in one turn, in order: observations, timers, withdrawals, choices, forgetting. Pure.

A turn with observations (a lease or worker lost, a policy, a mismatch) makes no choices: they are made in the next one,
on the state with the observations read back, so that a choice never rests on what the log does not hold yet. What
timers and withdrawals free is given away in a later turn, too. Every kind is bounded, so that ten thousand timers due
at once neither make a turn long nor keep choices out of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from contracts import events as ev
from contracts.retry import Backoff
from contracts.times import DAY_MS, day_text
from services.scheduler import decisions
from services.scheduler.decisions import Basis, Decision
from services.scheduler.fold.job_folds import OVERTAKEN, PAUSED
from services.scheduler.fold.records import Job
from services.scheduler.fold.state import PoolState
from services.scheduler.fold.timers import Clock
from services.scheduler.leases import LostAttempt, LostWorker
from services.scheduler.retention import Retention, forgettable

MOST_CHOICES = 256
MOST_TIMERS = 200
MOST_WORKERS = 20
MOST_FORGOTTEN = 100
GONE_COUNTER = -1  # no hash has it: the guard passes only where there is none


@dataclass(frozen=True, slots=True)
class Rules:
    """What stays the same over all turns."""

    retention: Retention
    known_for_s: int  # how long a forgotten id stays known
    run_grace_ms: int  # after its run-for clock, before the leader ends an attempt itself
    backoff: Backoff
    rate_limited_ms: int = 3_600_000  # since a provider first said "not now", before the job fails


@dataclass(frozen=True, slots=True)
class Observed:
    """What the leader sees beside the log."""

    now_ms: int
    turn: int
    needed_from: str  # by the notifier
    lost_workers: Sequence[LostWorker] = ()
    lost_attempts: Sequence[LostAttempt] = ()
    mismatches: Sequence[Decision] = ()
    policy: ev.PolicyApplied | None = None  # what differs from the log
    limits: Sequence[ev.Event] = ()  # of external limits: granted, paused


@dataclass(slots=True)
class _Plan:
    decisions: list[Decision] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  # one decision for each job and turn

    def claim(self, job: Job) -> bool:
        """Whether the job is still free for a decision of this turn."""
        if job.id in self.touched or job.aside:
            return False
        self.touched.add(job.id)
        return True


def plan_turn(
    state: PoolState, rules: Rules, seen: Observed, chance: Callable[[], float], mint: Callable[[], str]
) -> list[Decision]:
    """Return the decisions of the next turn; empty when there is nothing to do.

    Args:
        chance: gives a number in [0, 1), for the jitter of delays.
        mint: gives a fresh offer id.
    """
    plan = _Plan()
    _observe(plan, state, seen)
    observed = bool(plan.decisions)
    _run_timers(plan, state, rules, seen.now_ms, chance)
    _withdraw_paused(plan, state)
    if not observed:
        plan.decisions += _choose(state, seen, mint)
    for job in forgettable(state, rules.retention, seen.now_ms, seen.needed_from, MOST_FORGOTTEN):
        if plan.claim(job):
            plan.decisions.append(decisions.forget(job, rules.known_for_s))
    return plan.decisions


def next_due_ms(state: PoolState, rules: Rules, now_ms: int) -> int | None:
    """Return when the next timer fires or the next deck opens; None when there is nothing to wait for."""
    grace_ms = {Clock.RUN_FOR: rules.run_grace_ms, Clock.LIMITED: rules.rate_limited_ms}
    due = [at_ms + grace_ms.get(clock, 0) for clock in Clock if (at_ms := state.next_due_ms(clock)) is not None]
    due += [at_ms for at_ms in (state.next_deck_ms(now_ms), state.budgets.renews_at_ms) if at_ms is not None]
    return min(due, default=None)


def _observe(plan: _Plan, state: PoolState, seen: Observed) -> None:
    if seen.policy is not None:
        plan.decisions.append(decisions.observe(seen.policy))
    plan.decisions += [decisions.observe(event) for event in seen.limits]
    for name, n in state.limits.stale(seen.now_ms).items():
        plan.decisions.append(decisions.observe(ev.ResourceExpired(resource=name, n=n)))
    plan.decisions += seen.mismatches
    _judge_budgets(plan, state, seen.now_ms)
    for offer_id, (job_id, worker_id, slot, _) in sorted(state.seating.stranded.items()):
        plan.decisions.append(decisions.free_deck(job_id, offer_id, worker_id, slot))
    for worker in seen.lost_workers[:MOST_WORKERS]:
        _empty_worker(plan, state, worker.worker_id, worker.counter)
        plan.decisions.append(decisions.lose(worker))
    # what lies with a worker that left, though it had promised to hold nothing
    for worker_id in sorted(worker_id for worker_id in state.seating.on_worker if worker_id not in state.workers):
        _empty_worker(plan, state, worker_id, GONE_COUNTER)
    for lost in seen.lost_attempts:
        job = state.jobs.get(lost.job_id)
        if job is not None and job.worker_id == lost.worker_id and job.fence == lost.fence and plan.claim(job):
            plan.decisions.append(decisions.reclaim(job, lost.worker_id, lost.counter))


def _judge_budgets(plan: _Plan, state: PoolState, now_ms: int) -> None:
    renews_at_ms = state.budgets.renews_at_ms
    if renews_at_ms is not None and renews_at_ms <= now_ms:
        plan.decisions.append(decisions.observe(ev.BudgetsRenewed(day=day_text(now_ms // DAY_MS))))
        return
    today = day_text(now_ms // DAY_MS)
    for tenant_id in sorted(state.exhausted - state.budgets.told.keys())[:MOST_TIMERS]:
        event = ev.TenantBudgetExhausted(
            tenant_id=tenant_id, day=today, used_gpu_seconds=state.budgets.used_ms[tenant_id] // 1000,
            limit_gpu_seconds=state.tenant_rules[tenant_id].gpu_seconds_per_day or 0,
        )  # fmt: skip
        plan.decisions.append(decisions.observe(event))


def _empty_worker(plan: _Plan, state: PoolState, worker_id: str, counter: int) -> None:
    for job in (state.jobs[job_id] for job_id in sorted(state.seating.on_worker.get(worker_id, ()))):
        if job.worker_id == worker_id and plan.claim(job):
            plan.decisions.append(decisions.reclaim(job, worker_id, counter))
        for offer in [offer for offer in job.offers.values() if offer.worker_id == worker_id]:
            if plan.claim(job):
                plan.decisions.append(decisions.take_back(job, offer.id, worker_id, offer.slot, counter))


def _run_timers(
    plan: _Plan, state: PoolState, rules: Rules, now_ms: int, chance: Callable[[], float]
) -> None:  # fmt: skip
    for job in state.due(Clock.START_BY, now_ms, MOST_TIMERS):
        if plan.claim(job):
            plan.decisions.append(decisions.expire(job, now_ms))
    for job in state.due(Clock.QUEUE, now_ms, MOST_TIMERS):
        if plan.claim(job):
            plan.decisions.append(decisions.queue(job))
    for job in state.due(Clock.RUN_FOR, now_ms - rules.run_grace_ms, MOST_TIMERS):
        again_ms = now_ms + rules.backoff.delay_ms(job.attempt, chance())
        if plan.claim(job):
            plan.decisions.append(decisions.overrun(job, again_ms))
    for job in state.due(Clock.LIMITED, now_ms - rules.rate_limited_ms, MOST_TIMERS):
        if plan.claim(job):
            plan.decisions.append(decisions.give_up(job))
    for job in state.due(Clock.RECHARGE, now_ms, MOST_TIMERS):
        if plan.claim(job):
            plan.decisions.append(decisions.recharge(job, now_ms))


def _withdraw_paused(plan: _Plan, state: PoolState) -> None:
    """Take back what lies on decks and is paused; what runs goes on."""
    for job_id, offer_id, worker_id, slot in state.paused_offers():
        job = state.jobs[job_id]
        if plan.claim(job):
            plan.decisions.append(decisions.withdraw(job, offer_id, worker_id, slot, PAUSED))


def _choose(state: PoolState, seen: Observed, mint: Callable[[], str]) -> Iterator[Decision]:
    withdrawals, choices = state.choose(seen.now_ms, MOST_CHOICES)
    for taken in withdrawals:
        yield decisions.withdraw(state.jobs[taken.job_id], taken.offer_id, taken.worker_id, taken.slot, OVERTAKEN)
    basis = Basis(state.position, seen.now_ms, seen.turn)
    for i, choice in enumerate(choices):
        yield decisions.offer(state.jobs[choice.job_id], choice, mint(), basis, i, len(choices))

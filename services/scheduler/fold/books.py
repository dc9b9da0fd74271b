"""The books of one pool: jobs, workers, timers, estimates and the policy, and the few moves that all folds share."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from contracts.events import Event, TenantRule
from contracts.job import TERMINAL, JobStatus
from contracts.positions import START
from contracts.wire import Entry
from services.scheduler.fold.budgets import Budgets
from services.scheduler.fold.eligible import waiting_of
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.facts import (
    Charged,
    Ended,
    Leaves,
    ModelsPaused,
    Parked,
    Recharged,
    Replaced,
    Settled,
    Tokens,
    Waits,
)
from services.scheduler.fold.limits import Limits
from services.scheduler.fold.lines import Waiting
from services.scheduler.fold.peaks import Peaks
from services.scheduler.fold.policy import BlfqPolicy
from services.scheduler.fold.records import Job, Worker
from services.scheduler.fold.seating import Seating
from services.scheduler.fold.timers import Timers

MOST_RAISED = 10_000  # waiting jobs that one entry changes: the leader's turn must not wait for a million

Fold = Callable[["Books", Entry, Event], None]


class Books:
    """Everything that is folded. `apply` of `PoolState` is the only caller of what changes it."""

    def __init__(self) -> None:
        self.position = START
        self.entries_read = 0
        self.admitted = 0
        self.mismatches = 0
        self.arrived_ms = 0  # all work that ever began to wait; only what is told of waiting rests on it
        self.policy_position = START  # in the configuration log
        self.jobs: dict[str, Job] = {}
        self.ended: dict[JobStatus, deque[tuple[str, int]]] = {status: deque() for status in TERMINAL}
        self.by_age: deque[tuple[str, str]] = deque()  # first position and id; forgotten jobs until they are oldest
        self.estimates = Estimates()
        self.seating = Seating(self.estimates)
        self.peaks = Peaks()
        self.policy = BlfqPolicy(self.estimates)
        self.timers = Timers()
        self.limits = Limits(lambda name, n: self.policy.apply(Tokens(name, n)))
        self.budgets = Budgets()
        self.tenant_rules: dict[str, TenantRule] = {}  # as policy.applied named them
        self.budgeted: set[str] = set()  # tenants with a budget
        self.paused_ms: int | None = None  # since when the pool is paused
        self.paused_tenants: dict[str, int] = {}  # and tenants and models
        self.paused_models: dict[str, int] = {}
        self.aside: set[str] = set()  # jobs out of choice after a mismatch

    @property
    def workers(self) -> dict[str, Worker]:
        """The workers that are registered, by their ids."""
        return self.seating.workers

    def refresh(self, job: Job) -> None:
        """Bring timers and policy in line with a job that has changed."""
        self.timers.watch(job)
        if job.aside or self.aside:
            (self.aside.add if job.aside else self.aside.discard)(job.id)
        if job.tokens_until_ms is not None and not job.offers:
            self.limits.give_back(job.resources, job.tokens_until_ms)
            job.tokens_until_ms = None
        if not job.offers and job.worker_id is None and self.policy.in_flight(job.id):
            self.policy.apply(Ended(job.id))
        known, wanted = self.policy.waiting(job.id), waiting_of(job)
        if known == wanted:
            return
        self.limits.note(known, wanted)
        if known is not None:
            self.policy.apply(Leaves(job.id))
        if wanted is not None:
            self.arrived_ms += self.estimates.run_ms(job.model, job.bucket)
            self.policy.apply(Waits(wanted))

    def reserve(self, job: Job) -> None:
        """Let a job that becomes eligible again reserve what its like was seen to need meanwhile."""
        job.bytes = max(job.bytes, self.peaks.bytes(job.model, job.bucket))

    def raise_waiting(self, model: str) -> None:
        """Let the first jobs that wait for the model reserve what their like was seen to need meanwhile."""
        waiting = (job for job in self.jobs.values() if job.model == model and job.status is JobStatus.QUEUED)
        low = (job for job in waiting if not job.offers and job.bytes < self.peaks.bytes(model, job.bucket))
        for job in islice(low, MOST_RAISED):
            self.reserve(job)
            known, wanted = self.policy.waiting(job.id), waiting_of(job)
            if known is not None and wanted is not None and known != wanted:
                self.policy.apply(Replaced(wanted))

    def charge(self, job: Job, est_ms: int, now_ms: int, fact: Charged) -> None:
        """Charge the job for the first time in this attempt; its start will draw on its limits."""
        self._count(job, est_ms, now_ms)
        self.policy.apply(fact)

    def recharge(self, job: Job, device_ms: int, now_ms: int) -> None:
        """Charge a running job for what it has taken so far; it is not settled by that."""
        self._count(job, device_ms, now_ms)
        self.policy.apply(Recharged(job.id, device_ms))

    def settle(self, job: Job, device_ms: int | None, now_ms: int) -> None:
        """True up the job's charge for good; None gives it back. Without a charge nothing happens."""
        if job.is_charged:
            self._count(job, device_ms or 0, now_ms)
            job.is_charged, job.charged_ms = False, 0
            self.policy.apply(Settled(job.id, device_ms))

    @property
    def paused(self) -> bool:
        """Whether the pool is paused."""
        return self.paused_ms is not None

    def rule(self, tenant_id: str, rule: TenantRule, now_ms: int) -> None:
        """Take over what the configuration says of a tenant."""
        self.tenant_rules[tenant_id] = rule
        (self.budgeted.discard if rule.gpu_seconds_per_day is None else self.budgeted.add)(tenant_id)
        if rule.paused:
            self.paused_tenants.setdefault(tenant_id, now_ms)
        else:
            self.paused_tenants.pop(tenant_id, None)

    def pause(self, paused: bool, now_ms: int) -> None:
        """Pause the pool, or resume it."""
        self.paused_ms = (self.paused_ms or now_ms) if paused else None

    def pause_models(self, models: Sequence[str], now_ms: int) -> None:
        """Pause these models and no others."""
        self.paused_models = {model: self.paused_models.get(model, now_ms) for model in models}
        self.policy.apply(ModelsPaused(frozenset(models)))

    def judge(self, tenant_id: str) -> None:
        """Bring the policy in line with whether the tenant is paused, or its budget of the day is used."""
        parked = tenant_id in self.paused_tenants or self.is_exhausted(tenant_id)
        if parked != (tenant_id in self.policy.ledger.parked):
            self.policy.apply(Parked(tenant_id, parked))

    def is_exhausted(self, tenant_id: str) -> bool:
        """Whether the tenant has used its device time of the day."""
        rule = self.tenant_rules.get(tenant_id)
        budget_s = None if rule is None else rule.gpu_seconds_per_day
        return budget_s is not None and self.budgets.used_ms.get(tenant_id, 0) >= budget_s * 1000

    def is_paused(self, job: Job) -> bool:
        """Whether an operator has paused the job's pool, tenant or model."""
        return self.paused or job.tenant_id in self.paused_tenants or self.policy.boards.is_paused(job.model)

    def _count(self, job: Job, device_ms: int, now_ms: int) -> None:
        self.budgets.charge(job.tenant_id, device_ms - (job.charged_ms if job.is_charged else 0), now_ms)
        job.is_charged, job.charged_ms = True, device_ms
        if job.tenant_id in self.budgeted:
            self.judge(job.tenant_id)

    def derive(self) -> list[Waiting]:
        """Derive from the records what a snapshot does not hold: decks, devices, timers, who waits."""
        for job in self.jobs.values():
            for offer in list(job.offers.values()):
                self.seating.put_on_deck(job, offer)
            if job.worker_id is not None:
                self.seating.on_worker.setdefault(job.worker_id, set()).add(job.id)
            self.timers.watch(job)
        self.aside = {job.id for job in self.jobs.values() if job.aside}
        waiting = [wanted for job in self.jobs.values() if (wanted := waiting_of(job)) is not None]
        for wanted in waiting:
            self.limits.note(None, wanted)
        return waiting

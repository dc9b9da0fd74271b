"""The books of one pool: jobs, workers, timers, estimates and the policy, and the few moves that all folds share."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from contracts.events import Event, TenantRule
from contracts.job import TERMINAL, JobStatus
from contracts.positions import START
from contracts.wire import Entry
from services.scheduler.fold.budgets import Budgets
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.facts import (
    Charged,
    Ended,
    Leaves,
    ModelsPaused,
    Parked,
    Recharged,
    Settled,
    Tokens,
    Waits,
)
from services.scheduler.fold.limits import Limits
from services.scheduler.fold.lines import NEVER_MS, JobClass, Waiting, key_of
from services.scheduler.fold.peaks import Peaks
from services.scheduler.fold.placement import Place
from services.scheduler.fold.policy import BlfqPolicy
from services.scheduler.fold.records import Job, Offer, Slot, Worker
from services.scheduler.fold.timers import Timers

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
        self.workers: dict[str, Worker] = {}
        self.on_worker: dict[str, set[str]] = {}  # worker, also one that is gone -> jobs with an offer or attempt there
        self.ended: dict[JobStatus, deque[tuple[str, int]]] = {status: deque() for status in TERMINAL}
        self.by_age: deque[tuple[str, str]] = deque()  # first position and id; forgotten jobs until they are oldest
        self.estimates = Estimates()
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
        self.stranded: dict[str, tuple[str, str, int, int]] = {}  # offer of a job that started elsewhere -> see strand
        self.aside: set[str] = set()  # jobs out of choice after a mismatch
        self.holding: dict[str, int] = {}  # job that lies on a deck for its model -> until when it lies on no other

    def slot(self, worker_id: str | None, index: int | None) -> Slot | None:
        """Return a slot of a known worker."""
        worker = self.workers.get(worker_id or "")
        return None if worker is None or index is None else worker.slots.get(index)

    def place(self, worker_id: str, index: int) -> Place | None:
        """Return a slot of a known worker as a choice sees it."""
        worker, slot = self.workers.get(worker_id), self.slot(worker_id, index)
        return None if worker is None or slot is None else Place(worker, slot)

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

    def put_on_deck(self, job: Job, offer: Offer) -> None:
        """Let an offer of the job stand."""
        job.offers[offer.id] = offer
        if offer.hold_until_ms is not None:
            self.holding[job.id] = offer.hold_until_ms
        self.on_worker.setdefault(offer.worker_id, set()).add(job.id)
        slot = self.slot(offer.worker_id, offer.slot)
        if slot is not None:
            slot.lay(offer.id, job.id, offer.bytes)

    def take_off_deck(self, job: Job, offer_id: str) -> None:
        """End an offer of the job, if it stands."""
        offer = job.offers.pop(offer_id, None)
        if offer is None:
            return
        if offer.hold_until_ms is not None:
            self.holding.pop(job.id, None)
        slot = self.slot(offer.worker_id, offer.slot)
        if slot is not None:
            slot.lift(offer_id, offer.bytes)
        self._unlink(job, offer.worker_id)

    def strand(self, job: Job, offer: Offer) -> None:
        """End an offer of a job that started elsewhere; its deck stays filled until the leader has freed it."""
        slot = self.slot(offer.worker_id, offer.slot)
        filled = slot is not None and offer.id in slot.deck_offers
        self.take_off_deck(job, offer.id)
        if slot is not None and filled:
            slot.lay(offer.id, job.id, offer.bytes)
            self.stranded[offer.id] = (job.id, offer.worker_id, offer.slot, offer.bytes)

    def free_deck(self, offer_id: str) -> None:
        """Empty the deck of a stranded offer."""
        _, worker_id, index, offer_bytes = self.stranded.pop(offer_id, ("", "", 0, 0))
        slot = self.slot(worker_id, index)
        if slot is not None:
            slot.lift(offer_id, offer_bytes)

    def clear_decks(self, job: Job) -> None:
        """End all offers of the job."""
        for offer_id in list(job.offers):
            self.take_off_deck(job, offer_id)

    def put_on_device(self, job: Job, worker_id: str, index: int, now_ms: int) -> None:
        """Begin an attempt on a slot."""
        job.worker_id, job.slot, job.on_device = worker_id, index, True
        job.started_ms = job.runs_from_ms = now_ms
        self.on_worker.setdefault(worker_id, set()).add(job.id)
        slot = self.slot(worker_id, index)
        if slot is not None:
            # the members of a batch share the device: it is free when the time of all of them has passed
            begins_ms = slot.free_at_ms if slot.running_jobs else now_ms
            slot.running_jobs[job.id] = class_of(job).claim
            slot.free_at_ms = begins_ms + job.charged_ms
            slot.est_ms = slot.free_at_ms - now_ms
            slot.guessed = self.estimates.is_empty

    def expect_resident(self, job: Job, warm: bool) -> None:
        """Note that the job's model is, or will be, in memory where its attempt is.

        Of a model that has to be loaded nobody knows yet which others leave for it: none is counted on until the worker
        has said so, else what follows would be chosen for a model that is about to go.
        """
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None and not (warm and job.model in slot.resident):
            slot.resident = (job.model,)

    def note_loaded(self, job: Job, evicted: Collection[str] | None) -> None:
        """Note that the job's model is in memory now, and who left for it; None: all others."""
        slot, worker = self.slot(job.worker_id, job.slot), self.workers.get(job.worker_id or "")
        if slot is None or worker is None:
            return
        if evicted is None:
            slot.resident = (job.model,)
            return
        for beside in worker.slots.values():
            if beside.device == slot.device:
                stay = {model for model in beside.resident if model not in evicted}
                beside.resident = tuple(sorted({*stay, job.model}))

    def note_gone(self, job: Job) -> None:
        """Note that the child of the job's attempt has ended, and its model with it."""
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None:
            slot.resident = tuple(model for model in slot.resident if model != job.model)

    def take_off_device(self, job: Job) -> None:
        """End the device part of the attempt; the worker still holds the attempt."""
        job.on_device = False
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None and slot.running_jobs.pop(job.id, None) is not None and not slot.running_jobs:
            slot.free_at_ms = slot.est_ms = 0

    def leave_worker(self, job: Job) -> None:
        """End the attempt."""
        self.take_off_device(job)
        worker_id, job.worker_id, job.slot = job.worker_id, None, None
        if worker_id is not None:
            self._unlink(job, worker_id)

    def derive(self) -> list[Waiting]:
        """Derive from the records what a snapshot does not hold: decks, devices, timers, who waits."""
        for job in self.jobs.values():
            for offer in list(job.offers.values()):
                self.put_on_deck(job, offer)
            if job.worker_id is not None:
                self.on_worker.setdefault(job.worker_id, set()).add(job.id)
            self.timers.watch(job)
        self.aside = {job.id for job in self.jobs.values() if job.aside}
        waiting = [wanted for job in self.jobs.values() if (wanted := waiting_of(job)) is not None]
        for wanted in waiting:
            self.limits.note(None, wanted)
        return waiting

    def _unlink(self, job: Job, worker_id: str) -> None:
        if job.worker_id == worker_id or any(offer.worker_id == worker_id for offer in job.offers.values()):
            return
        held = self.on_worker.get(worker_id, set())
        held.discard(job.id)
        if not held:
            self.on_worker.pop(worker_id, None)


def waiting_of(job: Job) -> Waiting | None:
    """Return the job as the policy sees it, None while it is not eligible."""
    held_up = job.offers or job.not_before_ms is not None or job.cancel_requested or job.ending or job.aside
    if job.status is not JobStatus.QUEUED or held_up:
        return None
    expires_at_ms = NEVER_MS if job.start_by_at_ms is None else job.start_by_at_ms
    return Waiting(
        key_of(job.band, job.order), job.id, job.tenant_id, job.user, class_of(job), job.queued_ms, expires_at_ms,
        job.held,
    )  # fmt: skip


def class_of(job: Job) -> JobClass:
    """Return the class of a job; jobs of one class have the same object."""
    bucket, max_batch = (job.bucket, job.max_batch) if job.max_batch > 1 and not job.alone else ("", 1)
    return _class(job.model, job.bytes, job.resources, bucket, max_batch, job.alone)


@lru_cache(maxsize=4096)
def _class(
    model: str, job_bytes: int, resources: tuple[tuple[str, int], ...], bucket: str, max_batch: int, alone: bool
) -> JobClass:  # fmt: skip
    return JobClass(model, job_bytes, resources, bucket, max_batch, alone)

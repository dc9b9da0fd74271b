"""How events about workers and about the scheduler itself change the books."""

from collections.abc import Mapping

from contracts import events as ev
from contracts.events import Event, SlotInfo
from contracts.positions import entry_ms
from contracts.times import day_number
from contracts.wire import Entry
from services.scheduler.fold.books import Books, Fold
from services.scheduler.fold.facts import Knobbed, Ruled
from services.scheduler.fold.lines import NEVER_MS
from services.scheduler.fold.records import Slot, Worker


def _registered(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.WorkerRegistered)
    slots = {info.index: _slot(info) for info in event.slots}
    books.workers[event.worker_id] = Worker(event.worker_id, entry.position, frozenset(event.models), slots)


def _changed(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.WorkerChanged)
    worker = books.workers.get(event.worker_id)
    if worker is None:
        return
    for slot in worker.slots.values():  # one that is not named any more keeps what it runs and takes nothing new
        slot.listed = False
    for info in event.slots:
        slot = worker.slots.setdefault(info.index, _slot(info))
        slot.device, slot.kind, slot.bytes, slot.listed = info.device, info.kind, info.bytes, True
        slot.pinned = _pinned(info)
        slot.total_bytes = info.total_bytes or info.bytes
        running = books.jobs.get(slot.running or "")
        if running is None or running.model in info.models:  # else it was collected before the start
            slot.resident = info.models


def _draining(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.WorkerDraining)
    worker = books.workers.get(event.worker_id)
    if worker is not None:
        worker.draining = True


def _gone(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.WorkerDrained | ev.WorkerLost)
    books.workers.pop(event.worker_id, None)
    for offer_id in [
        offer_id for offer_id, (_, worker_id, *_) in books.seating.stranded.items() if worker_id == event.worker_id
    ]:
        books.seating.free_deck(offer_id)


def _deck_freed(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.WorkerDeckFreed)
    books.seating.free_deck(event.offer_id)


def _profiled(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.ModelProfiled)
    if event.source == "audit":
        books.peaks.forget(event.model)
    else:
        books.peaks.learn(event.model, event.bucket or "", event.bytes)
        books.raise_waiting(event.model)


def _policy_applied(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.PolicyApplied)
    books.policy_position, now_ms = event.position, entry_ms(entry.position)
    for tenant_id, weight in event.weights.items():
        rule = (event.tenants or {}).get(tenant_id, ev.TenantRule())
        books.policy.apply(Ruled(tenant_id, round(weight * 1000), rule.tier, rule.concurrency, rule.user_concurrency))
    for tenant_id, rule in (event.tenants or {}).items():
        books.rule(tenant_id, rule, now_ms)
        books.judge(tenant_id)
    if event.policy is not None:
        books.policy.apply(Knobbed(event.policy))
    if event.paused is not None:
        books.pause(event.paused, now_ms)
    if event.paused_models is not None:
        books.pause_models(event.paused_models, now_ms)
    if event.resources is not None:
        books.limits.declare(event.resources)


def _granted(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.ResourceGranted)
    books.limits.grant(event.resource, event.n, NEVER_MS if event.until_ms is None else event.until_ms)


def _tokens_expired(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.ResourceExpired)
    books.limits.expire(event.resource, event.n)


def _limit_paused(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.ResourcePaused)
    books.limits.pause(event.resource, event.until_ms)


def _exhausted(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.TenantBudgetExhausted)
    books.budgets.told[event.tenant_id] = entry_ms(entry.position)


def _renewed(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.BudgetsRenewed)
    used = sorted(books.budgets.used_ms)
    books.budgets.renew(day_number(event.day))
    for tenant_id in used:
        books.judge(tenant_id)


def _mismatch(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.SchedulerMismatch)
    books.mismatches += 1
    job, slot = books.jobs.get(event.job_id), books.seating.slot(event.worker_id, event.slot)
    if event.worker_id is not None:
        if slot is not None:
            slot.aside = True
    elif job is not None:
        job.aside = True
        books.refresh(job)


def _rebuilt(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.ProjectionRebuilt)
    job = books.jobs.get(event.job_id or "")
    if job is not None and job.aside:
        job.aside = False
        books.refresh(job)


def _slot(info: SlotInfo) -> Slot:
    total_bytes, pinned = info.total_bytes or info.bytes, _pinned(info)
    return Slot(
        info.index, info.device, info.kind, info.bytes, resident=info.models, pinned=pinned, total_bytes=total_bytes
    )


def _pinned(info: SlotInfo) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((info.pinned or {}).items()))


WORKER_FOLDS: Mapping[str, Fold] = {
    ev.WorkerRegistered.TYPE: _registered,
    ev.WorkerChanged.TYPE: _changed,
    ev.WorkerDraining.TYPE: _draining,
    ev.WorkerDrained.TYPE: _gone,
    ev.WorkerLost.TYPE: _gone,
    ev.WorkerDeckFreed.TYPE: _deck_freed,
    ev.ModelProfiled.TYPE: _profiled,
    ev.PolicyApplied.TYPE: _policy_applied,
    ev.ResourceGranted.TYPE: _granted,
    ev.ResourceExpired.TYPE: _tokens_expired,
    ev.ResourcePaused.TYPE: _limit_paused,
    ev.TenantBudgetExhausted.TYPE: _exhausted,
    ev.BudgetsRenewed.TYPE: _renewed,
    ev.SchedulerMismatch.TYPE: _mismatch,
    ev.ProjectionRebuilt.TYPE: _rebuilt,
}

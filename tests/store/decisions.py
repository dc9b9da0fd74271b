"""A leader's decisions for the machine: the write as the scheduler builds it, and the model's judgement of it.

A decision is built on the state before the turn and judged at its place in the turn, after the ones before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contracts import events as ev
from contracts.store import Word
from contracts.store.attempts import Offer
from contracts.store.write import JobGuard, WorkEntry, WorkerGuard, Write, off_deck, on_deck
from tests.store.job_model import SLOTS, TERMINAL, KnownOffer, Model, ModelJob

KINDS = (*["offer"] * 8, "withdraw", "expire", "due", *["lease lost"] * 3, "forget", "forget", "worker lost")

# what a decision is mostly about; the other half of the time it is about any job
STATUS_FOR = {"offer": "queued", "expire": "queued", "due": "queued", "lease lost": "in_progress"}


@dataclass
class Decision:
    """What is sent, and the word that has to come back."""

    write: Write
    judge: Callable[[], Word]


def decide(model: Model, kind: str, i: int, j: int, stale: int) -> Decision | None:
    """Build a decision of this kind; `stale` makes its guards older than the state. None where nothing fits."""
    if kind == "worker lost":
        return worker_lost(model, model.worker_at(i), stale)
    if kind == "withdraw":
        known = model.offer_at(j)
        return None if known is None else withdraw(model, known)
    orphan = model.orphan_at(i) if kind == "lease lost" and j % 4 == 0 else None
    job = orphan or model.job_at(i // 2, STATUS_FOR.get(kind) if i % 2 else None)
    if job is None:
        return None
    match kind:
        case "offer":
            deck = (model.free_deck_at(j // 4) if j % 4 else None) or (model.worker_at(j), j % SLOTS)
            return offer(model, job, *deck, stale)
        case "expire":
            return expire(model, job, stale)
        case "due":
            return due(model, job, stale)
        case "lease lost":
            return lease_lost(model, job, bool(j % 8 > 3), stale) if job.owner is not None else None
        case _:
            return forget(model, job, stale)


def offer(model: Model, job: ModelJob, worker: str, slot: int, stale: int) -> Decision:
    made = Offer(
        job.id, model.mint("offer"), slot, job.fence - stale, job.attempt, 3, job.tenant, "echo@1", timeout_ms=1000
    )
    event = ev.JobAssigned(worker_id=worker, offer_id=made.offer_id, slot=slot, device="cpu")
    guard = JobGuard(states=("queued",), fence=made.fence, run=job.run)
    write = Write(
        job.id,
        (event,),
        guard=guard,
        worker_guard=WorkerGuard(worker, open=True, deck_empty=slot),
        worker_fields=(on_deck(worker, slot, job.id, made.offer_id),),
        work=(WorkEntry(worker, "offer", made.to_data()),),
    )

    def deck() -> Word | None:
        if worker not in model.workers:
            return Word.GONE
        return Word.REFUSED if slot in model.workers[worker].decks else None

    def apply() -> None:
        job.gets_offer(made.offer_id, worker)
        model.offers.append(KnownOffer(worker, made))
        model.workers[worker].decks[slot] = made.offer_id
        model.workers[worker].work.append(("offer", made.offer_id))

    return Decision(write, _judged(model, job, guard, apply, deck))


def withdraw(model: Model, known: KnownOffer) -> Decision:
    event = ev.JobUnassigned(worker_id=known.worker, offer_id=known.id, reason="withdrawn")
    guard = JobGuard(offer_id=known.id)
    write = Write(
        known.offer.job_id,
        (event,),
        guard=guard,
        worker_fields=(off_deck(known.worker, known.offer.slot, known.offer.job_id, known.id),),
        work=(WorkEntry(known.worker, "withdraw", {"offerId": known.id, "jobId": known.offer.job_id}),),
    )

    def judge() -> Word:
        job = model.jobs.get(known.offer.job_id)
        word = Word.GONE if job is None else job.loses_offer(known.id)
        if word is Word.APPLIED:
            model.take_back([known])
        return word

    return Decision(write, judge)


def expire(model: Model, job: ModelJob, stale: int) -> Decision:
    guard = JobGuard(states=("scheduled", "queued"), run=job.run - stale)
    event = ev.JobExpired(start_by_at_ms=1, waited_ms=1)
    write = Write(job.id, (event,), guard=guard, closes_for=job.tenant, **taking_back(model, job))
    taken = model.standing(job)

    def apply() -> None:
        job.ends("expired")
        model.take_back(taken)

    return Decision(write, _judged(model, job, guard, apply))


def taking_back(model: Model, job: ModelJob) -> dict[str, Any]:
    """Return what a write that ends a waiting job does to the decks it lies on."""
    offers = model.standing(job)
    fields = [off_deck(known.worker, known.offer.slot, job.id, known.id) for known in offers]
    work = [WorkEntry(known.worker, "withdraw", {"offerId": known.id, "jobId": job.id}) for known in offers]
    return {"worker_fields": fields, "work": work}


def due(model: Model, job: ModelJob, stale: int) -> Decision:
    guard = JobGuard(states=("queued",), sequence=job.sequence - stale)
    write = Write(job.id, (ev.JobQueued(reason="retry", attempt=job.attempt),), guard=guard)
    return Decision(write, _judged(model, job, guard, lambda: job.waits("job.queued")))


def lease_lost(model: Model, job: ModelJob, final: bool, stale: int) -> Decision:
    owner = str(job.owner)
    beats = model.workers[owner].beats - stale if owner in model.workers else 1
    # a cancel that the leader has not folded yet must make it decide again
    guard = JobGuard(fence=job.fence, worker_id=owner, not_cancelled=not job.cancel)
    write = Write(
        job.id,
        _events_of_a_lost_lease(job, owner, final),
        fence=job.fence,
        guard=guard,
        worker_guard=WorkerGuard(owner, heartbeat=beats),
        closes_for=job.tenant if final or job.cancel else None,
    )

    def counter() -> Word | None:
        known = model.workers.get(owner)
        return Word.CONFLICT if known is not None and known.beats != beats else None

    return Decision(write, _judged(model, job, guard, lambda: job.loses_lease(final), counter))


def _events_of_a_lost_lease(job: ModelJob, owner: str, final: bool) -> list[ev.Event]:
    lost = ev.JobLeaseLost(worker_id=owner, attempt=job.attempt)
    if job.cancel:
        return [lost, ev.JobCancelled(how="killed")]
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    failed = ev.JobAttemptFailed(error=error, attempt=job.attempt, will_retry=not final)
    return [lost, failed, ev.JobFailed(error=error, attempts=job.attempt)] if final else [lost, failed]


def worker_lost(model: Model, worker: str, stale: int) -> Decision | None:
    known = model.workers.get(worker)
    if known is None:
        return None
    beats = known.beats - stale
    write = Write(
        worker,
        (ev.WorkerLost(worker_id=worker, silent_ms=1),),
        of_job=False,
        worker_guard=WorkerGuard(worker, heartbeat=beats),
        remove_worker=worker,
    )

    def judge() -> Word:
        if worker in model.workers and model.workers[worker].beats != beats:
            return Word.CONFLICT
        model.workers.pop(worker, None)
        return Word.APPLIED

    return Decision(write, judge)


def forget(model: Model, job: ModelJob, stale: int) -> Decision:
    guard = JobGuard(states=TERMINAL, sequence=job.sequence - stale)
    write = Write(job.id, (ev.JobForgotten(),), guard=guard, forget=(job.tenant, 60))
    return Decision(write, _judged(model, job, guard, lambda: model.forget(job)))


def _judged(
    model: Model,
    job: ModelJob,
    guard: JobGuard,
    apply: Callable[[], None],
    worker: Callable[[], Word | None] = lambda: None,
) -> Callable[[], Word]:
    """Return the judgement; the order of the answers is part of the promise: who may not write at all comes first."""

    def judge() -> Word:
        word = _guarded(model, job, guard) or worker()
        if word is None:
            apply()
        return word or Word.APPLIED

    return judge


def _guarded(model: Model, job: ModelJob, guard: JobGuard) -> Word | None:
    if job.id not in model.jobs:
        return Word.GONE
    if guard.fence not in (None, job.fence) or guard.worker_id not in (None, job.owner):
        return Word.FENCED
    if guard.sequence not in (None, job.sequence) or guard.run not in (None, job.run):
        return Word.CONFLICT
    if guard.not_cancelled and job.cancel:
        return Word.CONFLICT
    return Word.CONFLICT if guard.states is not None and job.status not in guard.states else None

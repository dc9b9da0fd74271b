"""What the leader decided, as writes: which events, under which guards, with which messages to workers. Pure.

Offers are guarded by status, fence and run of the job and by the worker (open, this deck empty), never by the job's
sequence: progress of others must not refuse them. What takes something away is guarded by what it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store.attempts import Offer
from contracts.store.write import JobGuard, WorkEntry, WorkerGuard, Write, off_deck, on_deck
from services.scheduler.fold import policy
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.job_folds import WORKER_LOST
from services.scheduler.fold.records import Job
from services.scheduler.leases import LostWorker

_WAITING = (JobStatus.SCHEDULED, JobStatus.QUEUED)
SUBJECT = "scheduler"  # of events that belong to no job and no worker


@dataclass(frozen=True, slots=True)
class Decision:
    """A write, and whom its refusal would be about."""

    write: Write
    job_id: str = ""
    worker_id: str = ""
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What a turn's choices were made on: position, server time, number of the turn."""

    position: str
    now_ms: int
    turn: int


def offer(job: Job, choice: Choice, offer_id: str, basis: Basis, i: int, of: int) -> Decision:
    """Offer a job to a slot, alone or as a member of a batch."""
    batch = "" if choice.batch is None else f"{basis.turn}-{choice.batch}"
    event = ev.JobAssigned(
        worker_id=choice.worker_id, offer_id=offer_id, slot=choice.slot, device=choice.device, bytes=choice.bytes,
        est_ms=choice.est_ms, wait_ms=choice.wait_ms, policy=policy.NAME, policy_version=policy.VERSION,
        phase=choice.phase, anchor=choice.anchor or None, why=choice.why, basis=basis.position, turn=basis.turn, i=i,
        of=of, now_ms=basis.now_ms, hold_until_ms=choice.hold_until_ms, batch=batch or None,
        batch_size=choice.batch_size if batch else None, alone=choice.alone or None,
    )  # fmt: skip
    made = Offer(
        job.id, offer_id, choice.slot, job.fence, job.attempt, job.max_attempts, job.tenant_id, job.model,
        job.timeout_ms, choice.bytes, choice.est_ms, tuple(sorted(job.hooks)), batch,
        choice.alone,
    )  # fmt: skip
    write = Write(
        job.id, (event,), hooked=job.hooks,
        guard=JobGuard(states=(JobStatus.QUEUED,), fence=job.fence, run=job.run),
        worker_guard=WorkerGuard(choice.worker_id, open=True, deck_empty=choice.slot, batch=batch),
        worker_fields=(on_deck(choice.worker_id, choice.slot, job.id, offer_id, batch),),
        work=(WorkEntry(choice.worker_id, "offer", made.to_data()),),
    )  # fmt: skip
    return Decision(write, job.id, choice.worker_id, choice.slot)


def withdraw(job: Job, offer_id: str, worker_id: str, slot: int, reason: str) -> Decision:
    """Take an offer back: a better job shall have the room, or nothing of the kind is to start now."""
    event = ev.JobUnassigned(worker_id=worker_id, offer_id=offer_id, reason=reason)
    return _take_back(job, event, slot, None)


def expire(job: Job, now_ms: int) -> Decision:
    """End a job that has waited past its start-by clock, on a deck or not."""
    assert job.start_by_at_ms is not None
    return _end_waiting(job, ev.JobExpired(start_by_at_ms=job.start_by_at_ms, waited_ms=max(0, now_ms - job.queued_ms)))


def give_up(job: Job) -> Decision:
    """Fail a job whose provider has said "not now" for too long."""
    error = ev.ErrorFacts(code="rate_limited", retryable=True)
    return _end_waiting(job, ev.JobFailed(error=error, attempts=job.attempt, dead_lettered=True))


def recharge(job: Job, now_ms: int) -> Decision:
    """Charge a running job for what it has taken: twice what it was charged, so that this is rare."""
    event = ev.JobRecharged(gpu_ms=max(2 * job.charged_ms, (now_ms - job.started_ms) // job.sharers))
    guard = JobGuard(states=(JobStatus.IN_PROGRESS,), fence=job.fence)
    return Decision(Write(job.id, (event,), fence=job.fence, hooked=job.hooks, guard=guard), job.id)


def free_deck(job_id: str, offer_id: str, worker_id: str, slot: int) -> Decision:
    """Empty a deck whose job started elsewhere; by its own name, so that nothing else can be lost."""
    event = ev.WorkerDeckFreed(worker_id=worker_id, slot=slot, offer_id=offer_id, job_id=job_id)
    write = Write(
        worker_id, (event,), of_job=False, worker_guard=WorkerGuard(worker_id),
        worker_fields=(off_deck(worker_id, slot, job_id, offer_id),),
        work=(WorkEntry(worker_id, "withdraw", {"offerId": offer_id, "jobId": job_id}),),
    )  # fmt: skip
    return Decision(write, worker_id=worker_id)


def _end_waiting(job: Job, event: ev.Event) -> Decision:
    """End a job that waits, on decks or not."""
    offers = job.offers.values()
    write = Write(
        job.id, (event,), hooked=job.hooks, guard=_as_it_waits(job), closes_for=job.tenant_id,
        worker_fields=tuple(off_deck(offer.worker_id, offer.slot, job.id, offer.id) for offer in offers),
        work=tuple(_withdrawn(job, offer.id, offer.worker_id) for offer in offers),
    )  # fmt: skip
    return Decision(write, job.id)


def queue(job: Job) -> Decision:
    """Make a job eligible whose time has come."""
    if job.status is JobStatus.SCHEDULED:
        reason: ev.QueueReason = "due"
    else:
        reason = "withdrawn" if job.declines else "retry"
    event = ev.JobQueued(reason=reason, attempt=job.attempt)
    return Decision(Write(job.id, (event,), hooked=job.hooks, guard=_as_it_waits(job)), job.id)


def overrun(job: Job, next_attempt_at_ms: int) -> Decision:
    """End an attempt whose worker should have stopped it long ago, and tell the worker."""
    error = ev.ErrorFacts(code="execution_timeout", retryable=True)
    order = WorkEntry(job.worker_id or "", "cancel", {"jobId": job.id, "fence": job.fence})
    return Decision(_end_attempt(job, (), error, next_attempt_at_ms, None, (order,)), job.id)


def reclaim(job: Job, worker_id: str, counter: int) -> Decision:
    """End an attempt that was lost with its worker, or by it; the job is eligible at once if an attempt is left."""
    lost = ev.JobLeaseLost(worker_id=worker_id, attempt=job.attempt)
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    write = _end_attempt(job, (lost,), error, None, WorkerGuard(worker_id, heartbeat=counter), ())
    return Decision(write, job.id)


def take_back(job: Job, offer_id: str, worker_id: str, slot: int, counter: int) -> Decision:
    """Take an offer back from a worker that is lost."""
    event = ev.JobUnassigned(worker_id=worker_id, offer_id=offer_id, reason=WORKER_LOST)
    return _take_back(job, event, slot, WorkerGuard(worker_id, heartbeat=counter))


def lose(worker: LostWorker) -> Decision:
    """Declare a worker lost; its hash, work stream and group go in the same call."""
    event = ev.WorkerLost(worker_id=worker.worker_id, silent_ms=worker.silent_ms)
    guard = WorkerGuard(worker.worker_id, heartbeat=worker.counter)
    write = Write(
        worker.worker_id, (event,), of_job=False, worker_guard=guard, remove_worker=worker.worker_id
    )  # fmt: skip
    return Decision(write, worker_id=worker.worker_id)


def forget(job: Job, known_for_s: int) -> Decision:
    """Remove hash and body of a job; its id stays known for `known_for_s`."""
    guard = JobGuard(states=(job.status,), run=job.run)
    return Decision(Write(job.id, (ev.JobForgotten(),), guard=guard, forget=(job.tenant_id, known_for_s)), job.id)


def observe(event: ev.Event) -> Decision:
    """Write down what the leader has seen outside the pool's log: configuration, external limits, a new day."""
    return Decision(Write(SUBJECT, (event,), of_job=False))


def mismatch(job_id: str, reason: str, worker_id: str | None, slot: int | None) -> Decision:
    """Set a job, or a slot, aside: a decision about it was refused and nothing in the log says why."""
    event = ev.SchedulerMismatch(job_id=job_id, reason=reason, worker_id=worker_id, slot=slot)
    return Decision(Write(SUBJECT, (event,), of_job=False))


def _as_it_waits(job: Job) -> JobGuard:
    return JobGuard(states=_WAITING, fence=job.fence, run=job.run)


def _withdrawn(job: Job, offer_id: str, worker_id: str) -> WorkEntry:
    return WorkEntry(worker_id, "withdraw", {"offerId": offer_id, "jobId": job.id})


def _take_back(job: Job, event: ev.JobUnassigned, slot: int, worker_guard: WorkerGuard | None) -> Decision:
    write = Write(
        job.id, (event,), hooked=job.hooks, guard=JobGuard(offer_id=event.offer_id), worker_guard=worker_guard,
        worker_fields=(off_deck(event.worker_id, slot, job.id, event.offer_id),),
        work=(_withdrawn(job, event.offer_id, event.worker_id),),
    )  # fmt: skip
    return Decision(write, job.id, event.worker_id, slot)


def _end_attempt(
    job: Job, first: Sequence[ev.Event], error: ev.ErrorFacts, next_attempt_at_ms: int | None,
    worker_guard: WorkerGuard | None, work: Sequence[WorkEntry],
) -> Write:  # fmt: skip
    """An attempt is over for a reason that is not the job's result: retry, fail, or be cancelled as was asked."""
    will_retry = not job.cancel_requested and job.attempt < job.max_attempts
    failed = ev.JobAttemptFailed(
        error=error, attempt=job.attempt, will_retry=will_retry, worker_id=job.worker_id,
        next_attempt_at_ms=next_attempt_at_ms if will_retry else None,
    )  # fmt: skip
    events: list[ev.Event] = [*first, failed]
    if job.cancel_requested:
        events.append(ev.JobCancelled(how="killed"))
    elif not will_retry:
        events.append(ev.JobFailed(error=error, attempts=job.attempt, dead_lettered=error.retryable))
    elif next_attempt_at_ms is None:
        events.append(ev.JobQueued(reason="lease_lost", attempt=job.attempt, worker_id=job.worker_id))
    return Write(
        job.id, tuple(events), fence=job.fence, hooked=job.hooks, worker_guard=worker_guard, work=work,
        guard=JobGuard(states=(JobStatus.IN_PROGRESS,), fence=job.fence, worker_id=job.worker_id),
        closes_for=None if will_retry else job.tenant_id,
    )  # fmt: skip

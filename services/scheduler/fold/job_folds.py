"""How each event of a job changes the books. Events about jobs that are unknown (forgotten, trimmed) change nothing."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from contracts import events as ev
from contracts.device_time import charged_ms, share_ms, taken_ms
from contracts.events import Event
from contracts.job import JobStatus
from contracts.positions import entry_ms
from contracts.wire import Entry
from services.scheduler.fold.books import Books, Fold
from services.scheduler.fold.facts import Charged
from services.scheduler.fold.records import BANDS, Job, Offer

OVERTAKEN, WORKER_LOST, PAUSED = "overtaken", "worker_lost", "paused"  # why the leader takes an offer back
_BY_LEADER = frozenset({OVERTAKEN, WORKER_LOST, PAUSED})
PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 60_000  # before a declined job is offered again; without it both sides would spin
LONGEST_LOAD_MS = 900_000  # of a model; its worker gives up on it long before
_REFUNDED = frozenset({"handed_back", "rate_limited", "lease_lost"})  # not the tenant's doing
LEAST_REFUSAL_MS, LONGEST_REFUSAL_MS = 1_000, 60_000  # a provider's "not now", whatever it says
LONGEST_LIMIT_PAUSE_MS = 900_000


def _created(books: Books, entry: Entry, event: Event) -> None:
    assert isinstance(event, ev.JobCreated)
    now_ms = entry_ms(entry.position)
    books.admitted += 1
    job = Job(
        id=entry.subject, tenant_id=event.tenant_id, model=event.model, band=BANDS[event.priority],
        order=books.admitted, first=entry.position, last=entry.position, max_attempts=event.max_attempts,
        timeout_ms=event.timeout_ms, bytes=event.vram_bytes, start_by_ms=event.start_by_ms,
        hooks=frozenset(event.webhook_events or ()), queued_ms=now_ms,
        start_by_at_ms=None if event.start_by_ms is None else now_ms + event.start_by_ms,
        user=sys.intern(event.user_digest or ""), bucket=sys.intern(event.bucket or ""), max_batch=event.max_batch or 1,
        resources=tuple(sorted((event.resources or {}).items())), alone=event.alone or False,
    )  # fmt: skip
    books.limits.meet(job.resources)
    books.reserve(job)
    books.jobs[job.id] = job
    books.by_age.append((job.first, job.id))
    books.refresh(job)


def _scheduled(books: Books, job: Job, event: ev.JobScheduled, now_ms: int) -> None:
    job.status, job.not_before_ms = JobStatus.SCHEDULED, event.run_at_ms
    books.refresh(job)


def _queued(books: Books, job: Job, event: ev.JobQueued, now_ms: int) -> None:
    books.seating.leave_worker(job)
    books.seating.clear_decks(job)
    job.status, job.attempt, job.queued_ms, job.ending = JobStatus.QUEUED, event.attempt, now_ms, False
    job.not_before_ms = _refused(books, job, event, now_ms) if event.reason == "rate_limited" else None
    if event.alone:
        job.max_batch = 1
    books.reserve(job)
    books.refresh(job)
    if event.reason in _REFUNDED:
        books.settle(job, None, now_ms)


def _refused(books: Books, job: Job, event: ev.JobQueued, now_ms: int) -> int | None:
    """Note a provider's "not now"; return until when the job waits by itself, None: its limit holds it."""
    job.limited += 1
    if job.limited_since_ms is None:
        job.limited_since_ms = now_ms
    said_ms = max(LEAST_REFUSAL_MS, event.retry_after_ms or 0)
    name = event.resource or ""
    if books.limits.refuse(name, now_ms + min(said_ms, LONGEST_LIMIT_PAUSE_MS)) and name in dict(job.resources):
        return None
    doubled_ms = LEAST_REFUSAL_MS << min(job.limited - 1, 10)
    return now_ms + min(LONGEST_REFUSAL_MS, max(said_ms, doubled_ms))


def _assigned(books: Books, job: Job, event: ev.JobAssigned, now_ms: int) -> None:
    if not job.offers:
        place = books.seating.place(event.worker_id, event.slot)
        phase, anchor = event.phase or "", event.anchor or ""
        charged = Charged(job.id, job.tenant_id, job.user, event.est_ms, phase, anchor, place)
        books.charge(job, event.est_ms, now_ms, charged)
        job.sharers = event.batch_size or 1
        job.tokens_until_ms = books.limits.take(job.resources) if job.resources else None
    job.held = job.held or event.hold_until_ms is not None
    given_bytes = 0 if event.alone else event.bytes  # all there is, however much that is by then
    offer = Offer(event.offer_id, event.worker_id, event.slot, given_bytes, event.est_ms, event.hold_until_ms)
    books.seating.put_on_deck(job, offer)
    books.refresh(job)


def _unassigned(books: Books, job: Job, event: ev.JobUnassigned, now_ms: int) -> None:
    stood = event.offer_id in job.offers
    books.seating.take_off_deck(job, event.offer_id)
    worker = books.workers.get(event.worker_id)
    if event.reason not in _BY_LEADER and worker is not None and not worker.draining:
        job.declines += 1
        job.not_before_ms = now_ms + min(LONGEST_PAUSE_MS, PAUSE_MS << min(job.declines - 1, 10))
    if not job.offers:
        books.reserve(job)
    books.refresh(job)
    if stood and not job.offers:
        books.settle(job, None, now_ms)


def _started(books: Books, job: Job, event: ev.JobStarted, now_ms: int) -> None:
    if not job.offers:  # never without an offer; a log that says so is still folded alike by everybody
        est_ms, place = books.estimates.run_ms(job.model, job.bucket), books.seating.place(event.worker_id, event.slot)
        books.charge(job, est_ms, now_ms, Charged(job.id, job.tenant_id, job.user, est_ms, "", "", place))
    books.seating.take_off_deck(job, event.offer_id)
    for offer in list(job.offers.values()):
        books.seating.strand(job, offer)
    job.tokens_until_ms = None
    job.status, job.attempt = JobStatus.IN_PROGRESS, event.attempt
    job.not_before_ms, job.start_by_at_ms, job.declines = None, None, 0
    job.load_ms, job.device_ms = 0, None
    books.seating.put_on_device(job, event.worker_id, event.slot, now_ms)
    books.seating.expect_resident(job, event.warm)
    books.refresh(job)


def _load_started(books: Books, job: Job, event: ev.ModelLoadStarted, now_ms: int) -> None:
    job.runs_from_ms = now_ms + LONGEST_LOAD_MS
    books.refresh(job)


def _load_completed(books: Books, job: Job, event: ev.ModelLoadCompleted, now_ms: int) -> None:
    job.runs_from_ms, job.load_ms = now_ms, share_ms(event.ms, job.sharers)  # as it shares its run
    books.estimates.learn_load(job.model, event.ms)
    books.seating.note_loaded(job, event.evicted)
    slot = books.seating.slot(job.worker_id, job.slot)
    if slot is not None and slot.running == job.id:
        slot.est_ms = books.estimates.run_ms(job.model, job.bucket) * len(slot.running_jobs)
        slot.free_at_ms = now_ms + slot.est_ms
    books.refresh(job)


def _device_released(books: Books, job: Job, event: ev.JobDeviceReleased, now_ms: int) -> None:
    books.seating.take_off_device(job)
    job.device_ms = event.gpu_ms
    books.recharge(job, event.gpu_ms, now_ms)  # settled by what becomes of the attempt


def _recharged(books: Books, job: Job, event: ev.JobRecharged, now_ms: int) -> None:
    books.recharge(job, event.gpu_ms, now_ms)
    books.refresh(job)


def _lease_lost(books: Books, job: Job, event: ev.JobLeaseLost, now_ms: int) -> None:
    books.settle(job, None, now_ms)


def _attempt_failed(books: Books, job: Job, event: ev.JobAttemptFailed, now_ms: int) -> None:
    books.settle(job, charged_ms(event, _taken_ms(job, now_ms)), now_ms)
    if event.error.exit_code is not None or event.error.signal is not None or event.error.code == "child_crashed":
        books.seating.note_gone(job)
    job.alone = job.alone or event.alone or False
    books.seating.leave_worker(job)
    job.status, job.queued_ms, job.ending = JobStatus.QUEUED, now_ms, not event.will_retry
    job.not_before_ms, job.limited_since_ms = event.next_attempt_at_ms, None
    books.reserve(job)
    books.refresh(job)


def _priority_changed(books: Books, job: Job, event: ev.JobPriorityChanged, now_ms: int) -> None:
    # Its order stays: in the new band it stands where its age puts it. Its deck, if it lies on one, stays, too.
    job.band = BANDS[event.priority]
    books.refresh(job)


def _cancel_requested(books: Books, job: Job, event: ev.JobCancelRequested, now_ms: int) -> None:
    job.cancel_requested = True
    books.refresh(job)


def _completed(books: Books, job: Job, event: ev.JobCompleted, now_ms: int) -> None:
    if job.device_ms is not None:  # only whole runs tell how long one takes
        books.estimates.learn_run(job.model, job.bucket, max(0, job.device_ms - job.load_ms))
    _end(books, job, event, JobStatus.COMPLETED, now_ms)


def _failed(books: Books, job: Job, event: ev.JobFailed, now_ms: int) -> None:
    _end(books, job, event, JobStatus.FAILED, now_ms)


def _cancelled(books: Books, job: Job, event: ev.JobCancelled, now_ms: int) -> None:
    if event.how == "killed":
        books.seating.note_gone(job)
    _end(books, job, event, JobStatus.CANCELLED, now_ms)


def _expired(books: Books, job: Job, event: ev.JobExpired, now_ms: int) -> None:
    _end(books, job, event, JobStatus.EXPIRED, now_ms)


def _taken_ms(job: Job, now_ms: int) -> int:
    return taken_ms(job.started_ms, job.device_ms, job.sharers, now_ms)


def _end(books: Books, job: Job, event: Event, status: JobStatus, now_ms: int) -> None:
    # an offer is charged nothing
    books.settle(job, None if job.worker_id is None else charged_ms(event, _taken_ms(job, now_ms)), now_ms)
    books.seating.clear_decks(job)
    books.seating.leave_worker(job)
    job.status, job.ended_ms, job.ending, job.aside = status, now_ms, False, False
    job.not_before_ms, job.start_by_at_ms, job.limited_since_ms = None, None, None
    books.ended[status].append((job.id, job.run))
    books.refresh(job)


def _retried(books: Books, job: Job, event: ev.JobRetried, now_ms: int) -> None:
    books.admitted += 1
    job.status, job.run, job.order, job.queued_ms = JobStatus.QUEUED, event.run, books.admitted, now_ms
    job.max_attempts, job.cancel_requested, job.aside, job.declines = event.max_attempts, False, False, 0
    job.held, job.limited = False, 0
    books.reserve(job)
    job.start_by_at_ms = None if job.start_by_ms is None else now_ms + job.start_by_ms
    books.refresh(job)


def _forgotten(books: Books, job: Job, event: ev.JobForgotten, now_ms: int) -> None:
    del books.jobs[job.id]
    books.aside.discard(job.id)
    while books.by_age and books.by_age[0][1] not in books.jobs:
        books.by_age.popleft()


def _of_known_job(fold: Callable[[Books, Job, Any, int], None]) -> Fold:
    """Find the job first; a fence that rose (only a start raises it) is noted for whoever follows."""

    def folded(books: Books, entry: Entry, event: Event) -> None:
        job = books.jobs.get(entry.subject)
        if job is not None:
            job.fence = max(job.fence, entry.fence)
            fold(books, job, event, entry_ms(entry.position))

    return folded


JOB_FOLDS: Mapping[str, Fold] = {
    ev.JobCreated.TYPE: _created,
    ev.JobScheduled.TYPE: _of_known_job(_scheduled),
    ev.JobQueued.TYPE: _of_known_job(_queued),
    ev.JobAssigned.TYPE: _of_known_job(_assigned),
    ev.JobUnassigned.TYPE: _of_known_job(_unassigned),
    ev.JobStarted.TYPE: _of_known_job(_started),
    ev.ModelLoadStarted.TYPE: _of_known_job(_load_started),
    ev.ModelLoadCompleted.TYPE: _of_known_job(_load_completed),
    ev.JobDeviceReleased.TYPE: _of_known_job(_device_released),
    ev.JobRecharged.TYPE: _of_known_job(_recharged),
    ev.JobLeaseLost.TYPE: _of_known_job(_lease_lost),
    ev.JobAttemptFailed.TYPE: _of_known_job(_attempt_failed),
    ev.JobPriorityChanged.TYPE: _of_known_job(_priority_changed),
    ev.JobCancelRequested.TYPE: _of_known_job(_cancel_requested),
    ev.JobCompleted.TYPE: _of_known_job(_completed),
    ev.JobFailed.TYPE: _of_known_job(_failed),
    ev.JobCancelled.TYPE: _of_known_job(_cancelled),
    ev.JobExpired.TYPE: _of_known_job(_expired),
    ev.JobRetried.TYPE: _of_known_job(_retried),
    ev.JobForgotten.TYPE: _of_known_job(_forgotten),
}

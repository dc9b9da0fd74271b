"""Which small fields of a job an event sets.

The same mapping is written to the job hash by the writer and applied by `evolve` while reading, so that folding the log
gives the live hash, field by field.
"""

from contracts import events as ev
from contracts.job import FIELDS, JobStatus

NOW = "@"  # in `changes`: the wall time of the entry, which only the store knows while writing
GONE = ""  # in `changes`: the field is removed

EVERY_EVENT = "*"  # in `hooked`: each entry is marked, whatever its writer knows of the subscription

OFFER_PREFIX = "o:"
_OF_THE_ATTEMPT = ("worker_id", "slot", "offer_id", "progress", "step", "phase")

Changes = dict[str, str]


def changes(event: ev.Event, fence: int) -> Changes:
    """Return hash field -> new value for one event of an attempt with this fence.

    NOW stands for the entry's wall time in ms (as `NOW+n` for n ms later), GONE removes the field. Offers are
    fields `o:<offerId>`; the pseudo field `o:*` removes all of them. Does not depend on the state before.
    """
    match event:
        case ev.JobCreated():
            return _created(event)
        case ev.JobScheduled(run_at_ms=at):
            return {FIELDS["status"]: JobStatus.SCHEDULED, FIELDS["not_before_ms"]: str(at)}
        case ev.JobQueued(attempt=attempt):
            return _back_in_line() | {FIELDS["attempt"]: str(attempt), FIELDS["queued_ms"]: NOW}
        case ev.JobAssigned():
            return {OFFER_PREFIX + event.offer_id: f"{event.worker_id} {event.slot}"}
        case ev.JobUnassigned():
            return {OFFER_PREFIX + event.offer_id: GONE}
        case ev.JobStarted():
            return _started(event, fence)
        case ev.JobProgress():
            return _progress(event)
        case ev.JobPriorityChanged(priority=priority):
            return {FIELDS["priority"]: priority}
        case ev.JobWebhookChanged():
            return {FIELDS["hooked"]: EVERY_EVENT}
        case ev.JobCancelRequested():
            return {FIELDS["cancel_requested_ms"]: NOW}
        case ev.JobAttemptFailed(error=error, next_attempt_at_ms=at):
            waits = {FIELDS["not_before_ms"]: str(at)} if at is not None else {}
            return _back_in_line() | {FIELDS["error_code"]: error.code} | waits
        case ev.JobCompleted():
            return _ended(JobStatus.COMPLETED) | {FIELDS["progress"]: "100", FIELDS["error_code"]: GONE}
        case ev.JobFailed(error=error, dead_lettered=dead):
            letter = {FIELDS["dead_lettered"]: "1"} if dead else {}
            return _ended(JobStatus.FAILED) | {FIELDS["error_code"]: error.code} | letter
        case ev.JobCancelled():
            return _ended(JobStatus.CANCELLED)
        case ev.JobExpired():
            return _ended(JobStatus.EXPIRED)
        case ev.JobRetried():
            return _retried(event)
        case ev.JobDiscarded():
            return {FIELDS["dead_lettered"]: GONE}
        case ev.JobErased():
            return {FIELDS["erased_ms"]: NOW}
        case _:
            return {}


def _created(event: ev.JobCreated) -> Changes:
    fields = {
        "status": JobStatus.QUEUED,
        "run": "1",
        "fence": "0",
        "attempt": "0",
        "tenant_id": event.tenant_id,
        "model": event.model,
        "priority": event.priority,
        "max_attempts": str(event.max_attempts),
        "timeout_ms": str(event.timeout_ms),
        "body_bytes": str(event.body_bytes),
        "created_ms": NOW,
        "queued_ms": NOW,
    }
    if event.webhook_events is not None:
        fields["hooked"] = "1"
    if event.dedup_hash is not None:
        fields["dedup_hash"] = event.dedup_hash
    if event.start_by_ms is not None:
        fields["start_by_at_ms"] = f"{NOW}+{event.start_by_ms}"
    return {FIELDS[name]: str(value) for name, value in fields.items()}


def _started(event: ev.JobStarted, fence: int) -> Changes:
    fields = {
        "status": JobStatus.IN_PROGRESS,
        "fence": str(fence),
        "attempt": str(event.attempt),
        "worker_id": event.worker_id,
        "slot": str(event.slot),
        "offer_id": event.offer_id,
        "started_ms": NOW,
        "not_before_ms": GONE,
        "progress": "0",
        "step": GONE,
        "phase": GONE,
        "error_code": GONE,
    }
    return {FIELDS[name]: str(value) for name, value in fields.items()} | {OFFER_PREFIX + "*": GONE}


def _progress(event: ev.JobProgress) -> Changes:
    fields = {FIELDS["progress"]: f"{event.progress:g}"}
    for name in ("step", "total_steps", "phase"):
        value = getattr(event, name)
        if value is not None:
            # A phase is an author's text: one that begins like NOW would be taken for a time.
            fields[FIELDS[name]] = str(value).lstrip(NOW)
    return fields


def _back_in_line() -> Changes:
    ended = {FIELDS[name]: GONE for name in (*_OF_THE_ATTEMPT, "not_before_ms")}
    return {FIELDS["status"]: JobStatus.QUEUED, OFFER_PREFIX + "*": GONE} | ended


def _ended(status: JobStatus) -> Changes:
    gone = {FIELDS[name]: GONE for name in ("worker_id", "slot", "phase", "not_before_ms")}
    return {FIELDS["status"]: status, FIELDS["done_ms"]: NOW, OFFER_PREFIX + "*": GONE} | gone


def _retried(event: ev.JobRetried) -> Changes:
    ended = ("cancel_requested_ms", "done_ms", "error_code", "dead_lettered")
    # the start-by clock ran for the first run: a job that expired must not expire again at once
    fresh = {FIELDS[name]: GONE for name in (*ended, "start_by_at_ms")}
    fields = {"run": str(event.run), "max_attempts": str(event.max_attempts), "queued_ms": NOW}
    return _back_in_line() | fresh | {FIELDS[name]: value for name, value in fields.items()}

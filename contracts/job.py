"""The job state machine as data, and the fold.

`TRANSITIONS` is the only copy of the rules: Lua guards sequences, fences and offers and knows no state name.
`changes` says which small fields an event sets; the same mapping is written to the job hash by the writer and
applied by `evolve` while reading, so that folding the log gives the live hash, field by field.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from contracts import events as ev
from contracts.errors import Corrupt
from contracts.positions import entry_ms
from contracts.wire import Entry


class JobStatus(StrEnum):
    """What the caller sees. Waiting: scheduled, queued. Running: in_progress. The rest is terminal."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


S = JobStatus
TERMINAL: Final = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED, S.EXPIRED})
WAITING: Final = frozenset({S.SCHEDULED, S.QUEUED})

TRANSITIONS: Final[Mapping[tuple[JobStatus | None, str], JobStatus]] = {
    # waiting
    (None, "job.created"): S.QUEUED,  # admitted; the scheduler sees it at once
    (S.QUEUED, "job.scheduled"): S.SCHEDULED,  # in the same call as job.created, when runAt lies ahead
    (S.SCHEDULED, "job.queued"): S.QUEUED,  # its time has come
    (S.QUEUED, "job.queued"): S.QUEUED,  # a retry's delay is over, or an offer's worker gave it back
    (S.QUEUED, "job.assigned"): S.QUEUED,  # an offer is no start: for the caller it still waits
    (S.QUEUED, "job.unassigned"): S.QUEUED,
    (S.SCHEDULED, "job.cancelled"): S.CANCELLED,
    (S.QUEUED, "job.cancelled"): S.CANCELLED,  # also between attempts
    (S.SCHEDULED, "job.expired"): S.EXPIRED,
    (S.QUEUED, "job.expired"): S.EXPIRED,
    (S.QUEUED, "job.failed"): S.FAILED,  # after job.attempt_failed in the same call, when no attempt is left
    (S.SCHEDULED, "job.priority_changed"): S.SCHEDULED,
    (S.QUEUED, "job.priority_changed"): S.QUEUED,
    (S.IN_PROGRESS, "job.priority_changed"): S.IN_PROGRESS,  # counts should it wait again
    (S.SCHEDULED, "job.metadata_changed"): S.SCHEDULED,
    (S.QUEUED, "job.metadata_changed"): S.QUEUED,
    (S.IN_PROGRESS, "job.metadata_changed"): S.IN_PROGRESS,
    # running
    (S.QUEUED, "job.started"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.progress"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.device_released"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.recharged"): S.IN_PROGRESS,
    (S.IN_PROGRESS, "job.cancel_requested"): S.IN_PROGRESS,  # it stops at its next step, or is killed
    (S.IN_PROGRESS, "job.lease_lost"): S.IN_PROGRESS,  # always followed by job.attempt_failed in the same call
    (S.IN_PROGRESS, "job.attempt_failed"): S.QUEUED,  # waits for its delay, or fails in the same call
    (S.IN_PROGRESS, "job.queued"): S.QUEUED,  # handed back or rate limited: the attempt does not count
    (S.IN_PROGRESS, "job.completed"): S.COMPLETED,
    (S.IN_PROGRESS, "job.cancelled"): S.CANCELLED,
    # a milestone of the author changes nothing but the log
    **{(S.IN_PROGRESS, milestone): S.IN_PROGRESS for milestone in sorted(ev.MILESTONES)},
    # terminal: left only by a new run
    (S.FAILED, "job.dead_lettered"): S.FAILED,
    **{(ended, "job.retried"): S.QUEUED for ended in (S.FAILED, S.CANCELLED, S.EXPIRED)},
    **{(ended, "job.forgotten"): ended for ended in TERMINAL},  # the last event of all
    # the trace of a refused late write may follow anything
    **{(status, "job.event_rejected"): status for status in S},
}

NOW = "@"  # in `changes`: the wall time of the entry, which only the store knows while writing
GONE = ""  # in `changes`: the field is removed

OFFER_PREFIX = "o:"

# attribute of JobState -> field of the job hash; short because a million waiting jobs pay for each letter
FIELDS: Final[Mapping[str, str]] = {
    "status": "s",
    "fence": "f",
    "attempt": "a",
    "run": "r",
    "tenant_id": "t",
    "model": "m",
    "priority": "pr",
    "max_attempts": "ma",
    "timeout_ms": "xt",
    "created_ms": "c",
    "body_bytes": "u",
    "hooked": "h",
    "not_before_ms": "nb",
    "start_by_at_ms": "sb",
    "worker_id": "w",
    "slot": "sl",
    "offer_id": "of",
    "queued_ms": "q",
    "started_ms": "sa",
    "progress": "pg",
    "step": "st",
    "total_steps": "ts",
    "phase": "ph",
    "cancel_requested_ms": "cr",
    "done_ms": "da",
    "error_code": "ec",
    "dead_lettered": "dl",
    "dedup_hash": "dd",
}
_INTEGERS = frozenset(
    {"fence", "attempt", "run", "max_attempts", "timeout_ms", "created_ms", "body_bytes", "not_before_ms",
     "start_by_at_ms", "slot", "queued_ms", "started_ms", "step", "total_steps", "cancel_requested_ms", "done_ms"}
)  # fmt: skip
_ATTRIBUTES: Final[Mapping[str, str]] = {short: name for name, short in FIELDS.items()}
_OF_THE_ATTEMPT = ("worker_id", "slot", "offer_id", "progress", "step", "phase")


@dataclass(frozen=True, slots=True)
class JobState:
    """A job folded to `sequence`. The fields above FIELDS are small and live in the hash; the last two do not."""

    id: str
    sequence: int = 0
    position: str = ""
    status: JobStatus | None = None
    fence: int = 0
    attempt: int = 0
    run: int = 0
    tenant_id: str = ""
    model: str = ""
    priority: str = "normal"
    max_attempts: int = 3
    timeout_ms: int = 0
    created_ms: int = 0
    body_bytes: int = 0
    hooked: str | None = None
    not_before_ms: int | None = None
    start_by_at_ms: int | None = None
    worker_id: str | None = None
    slot: int | None = None
    offer_id: str | None = None
    queued_ms: int | None = None
    started_ms: int | None = None
    progress: float = 0.0
    step: int | None = None
    total_steps: int | None = None
    phase: str | None = None
    cancel_requested_ms: int | None = None
    done_ms: int | None = None
    error_code: str | None = None
    dead_lettered: str | None = None
    dedup_hash: str | None = None
    offers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    artifacts: tuple[ev.ArtifactRef, ...] = ()
    timings: ev.Timings = ev.Timings()

    @property
    def terminal(self) -> bool:
        """Whether this run of the job has ended."""
        return self.status in TERMINAL


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
            return {FIELDS["status"]: S.SCHEDULED, FIELDS["not_before_ms"]: str(at)}
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
        case ev.JobCancelRequested():
            return {FIELDS["cancel_requested_ms"]: NOW}
        case ev.JobAttemptFailed(error=error, next_attempt_at_ms=at):
            waits = {FIELDS["not_before_ms"]: str(at)} if at is not None else {}
            return _back_in_line() | {FIELDS["error_code"]: error.code} | waits
        case ev.JobCompleted():
            return _ended(S.COMPLETED) | {FIELDS["progress"]: "100", FIELDS["error_code"]: GONE}
        case ev.JobFailed(error=error, dead_lettered=dead):
            letter = {FIELDS["dead_lettered"]: "1"} if dead else {}
            return _ended(S.FAILED) | {FIELDS["error_code"]: error.code} | letter
        case ev.JobCancelled():
            return _ended(S.CANCELLED)
        case ev.JobExpired():
            return _ended(S.EXPIRED)
        case ev.JobRetried():
            return _retried(event)
        case _:
            return {}


def _created(event: ev.JobCreated) -> Changes:
    fields = {
        "status": S.QUEUED,
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
        "status": S.IN_PROGRESS,
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
    return {FIELDS["status"]: S.QUEUED, OFFER_PREFIX + "*": GONE} | ended


def _ended(status: JobStatus) -> Changes:
    gone = {FIELDS[name]: GONE for name in ("worker_id", "slot", "phase", "not_before_ms")}
    return {FIELDS["status"]: status, FIELDS["done_ms"]: NOW, OFFER_PREFIX + "*": GONE} | gone


def _retried(event: ev.JobRetried) -> Changes:
    ended = ("cancel_requested_ms", "done_ms", "error_code", "dead_lettered")
    # the start-by clock ran for the first run: a job that expired must not expire again at once
    fresh = {FIELDS[name]: GONE for name in (*ended, "start_by_at_ms")}
    fields = {"run": str(event.run), "max_attempts": str(event.max_attempts), "queued_ms": NOW}
    return _back_in_line() | fresh | {FIELDS[name]: value for name, value in fields.items()}


def evolve(state: JobState, entry: Entry) -> JobState:
    """Fold one entry of the job. Raises Corrupt for a gap in the sequence or an illegal transition."""
    if entry.sequence != state.sequence + 1:
        raise Corrupt(entry.position, f"{state.id}: event {entry.sequence} follows {state.sequence}")
    event = entry.event()
    if event is not None and (state.status, entry.type) not in TRANSITIONS:
        raise Corrupt(entry.position, f"{state.id}: {entry.type} is not possible while {state.status}")
    moved = replace(state, sequence=entry.sequence, position=entry.position)
    if event is None:  # a type of a newer version: kept in the log, skipped here
        return moved
    moved = _apply(moved, changes(event, entry.fence), entry_ms(entry.position))
    if isinstance(event, ev.JobCompleted):
        return replace(moved, artifacts=event.artifacts, timings=event.timings)
    return moved


def fold(job_id: str, entries: Iterable[Entry]) -> JobState:
    """Fold the events of one job in order, from its creation."""
    state = JobState(job_id)
    for entry in entries:
        state = evolve(state, entry)
    return state


def legal(status: JobStatus | None, event_type: str) -> bool:
    """Whether an event of this type may follow a job with this status."""
    return (status, event_type) in TRANSITIONS


def _apply(state: JobState, fields: Changes, now_ms: int) -> JobState:
    offers = dict(state.offers)
    values: dict[str, object] = {}
    for name, value in fields.items():
        if name == OFFER_PREFIX + "*":
            offers.clear()
        elif name.startswith(OFFER_PREFIX):
            _apply_offer(offers, name[len(OFFER_PREFIX) :], value)
        else:
            attribute = _ATTRIBUTES[name]
            values[attribute] = _value(attribute, _resolve(value, now_ms))
    return replace(state, offers=offers, **values)  # type: ignore[arg-type]


def _apply_offer(offers: dict[str, tuple[str, int]], offer_id: str, value: str) -> None:
    if value == GONE:
        offers.pop(offer_id, None)
        return
    worker_id, _, slot = value.partition(" ")
    offers[offer_id] = (worker_id, int(slot))


def _resolve(value: str, now_ms: int) -> str:
    if not value.startswith(NOW):
        return value
    return str(now_ms + int(value[2:] or 0))


_DEFAULTS: Final[Mapping[str, object]] = {"progress": 0.0}


def _value(attribute: str, text: str) -> object:
    if text == GONE:
        return _DEFAULTS.get(attribute)
    if attribute in _INTEGERS:
        return int(text)
    if attribute == "progress":
        return float(text)
    return JobStatus(text) if attribute == "status" else text


def from_hash(job_id: str, raw: Mapping[str, str]) -> JobState | None:
    """Read the folded state from the job hash; None when the hash is empty (never admitted, or forgotten)."""
    if "s" not in raw:
        return None
    offers: dict[str, tuple[str, int]] = {}
    values: dict[str, object] = {}
    for name, value in raw.items():
        if name.startswith(OFFER_PREFIX):
            _apply_offer(offers, name[len(OFFER_PREFIX) :], value)
        elif name in _ATTRIBUTES:
            values[_ATTRIBUTES[name]] = _value(_ATTRIBUTES[name], value)
    return JobState(job_id, int(raw["n"]), raw["p"], offers=offers, **values)  # type: ignore[arg-type]

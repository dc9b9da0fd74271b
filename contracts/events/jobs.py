"""A job's life, from admission to its one end."""

from typing import ClassVar, Literal

from contracts.events.root import ArtifactRef, ErrorFacts, Event, Manifest, Reproduction, Timings

Priority = Literal["low", "normal", "high", "urgent"]
QueueReason = Literal["retry", "lease_lost", "handed_back", "rate_limited", "withdrawn", "due", "redrive"]


class JobCreated(Event):
    """ingest: a job was admitted and is durable."""

    TYPE: ClassVar[str] = "job.created"
    tenant_id: str
    model: str
    priority: Priority = "normal"
    max_attempts: int = 3
    timeout_ms: int
    start_by_ms: int | None = None  # after the job was created (or queued again)
    vram_bytes: int = 0
    alone: bool | None = None  # more than was ever measured: it gets a device for itself, with these bytes at least
    bucket: str | None = (
        None  # of the parameters that decide how long a job takes: jobs of one bucket cost about the same
    )
    max_batch: int | None = None  # of the model, if more than 1: how many jobs of one bucket may run in one pass
    resources: dict[str, int] | None = None  # external rate limits a start draws on: name -> tokens
    body_bytes: int = 0
    body_digest: str = ""  # salted SHA-256 of the body: proves what was asked, reveals nothing
    user_digest: str | None = None  # keyed digest of userId: the same user gets the same one
    key_hash: str | None = None  # of the Idempotency-Key
    dedup_hash: str | None = None  # keyed digest of the dedup key that the job holds while it is in flight
    webhook_events: tuple[str, ...] | None = None  # what the job's own webhook subscribes to
    traceparent: str | None = None
    reproduces: str | None = None  # the job that this one is to give again


class JobScheduled(Event):
    """ingest: the job must not start before `run_at_ms`."""

    TYPE: ClassVar[str] = "job.scheduled"
    run_at_ms: int


class JobQueued(Event):
    """scheduler or worker: the job is eligible again; never written for a new job."""

    TYPE: ClassVar[str] = "job.queued"
    reason: QueueReason
    attempt: int  # the count after this event: a hand-back gives its attempt back
    worker_id: str | None = None
    resource: str | None = None  # rate_limited: which one said "not now"
    retry_after_ms: int | None = None  # rate_limited: for how long, as far as it said so
    alone: bool | None = None  # from now on never in a batch: the last one was lost with it


class JobAssigned(Event):
    """scheduler: an offer to one slot of one worker; it becomes an attempt when the worker's start is accepted."""

    TYPE: ClassVar[str] = "job.assigned"
    worker_id: str
    offer_id: str
    slot: int
    device: str
    bytes: int = 0
    est_ms: int = 0
    wait_ms: int = 0
    policy: str = ""
    policy_version: int = 1
    phase: str | None = None
    anchor: str | None = None
    why: str = ""
    basis: str = ""  # position up to which the log was folded when this was chosen
    turn: int = 0
    i: int = 0
    of: int = 1
    now_ms: int = 0
    hold_until_ms: int | None = None  # why is "hold": until when it may wait for a busy device that has its model
    batch: str | None = None  # members of one batch carry the same one; they share a slot
    batch_size: int | None = None
    alone: bool | None = None  # in a fresh process, with all the device has: that is what `bytes` says


class JobUnassigned(Event):
    """scheduler or worker: an offer was taken back before it was started."""

    TYPE: ClassVar[str] = "job.unassigned"
    worker_id: str
    offer_id: str
    reason: str


class JobStarted(Event):
    """worker: the start was accepted; author code may run. All offers of the job are gone."""

    TYPE: ClassVar[str] = "job.started"
    worker_id: str
    offer_id: str
    slot: int
    device: str
    attempt: int
    warm: bool = False
    batch: str | None = None


class JobProgress(Event):
    """worker: coalesced progress; never falls inside one attempt."""

    TYPE: ClassVar[str] = "job.progress"
    progress: float  # 0-100
    step: int | None = None
    total_steps: int | None = None
    phase: str | None = None


class JobDeviceReleased(Event):
    """worker: the device part is over, the slot is free; uploads follow."""

    TYPE: ClassVar[str] = "job.device_released"
    gpu_ms: int
    peak_bytes: int | None = None


class JobAttemptFailed(Event):
    """worker or scheduler: this attempt is over without a result."""

    TYPE: ClassVar[str] = "job.attempt_failed"
    error: ErrorFacts
    attempt: int
    will_retry: bool
    next_attempt_at_ms: int | None = None
    worker_id: str | None = None
    gpu_ms: int | None = None
    alone: bool | None = None  # out of memory: from now on it gets a device for itself, in a fresh process


class JobLeaseLost(Event):
    """scheduler: the worker's heartbeat stood still for a whole lease."""

    TYPE: ClassVar[str] = "job.lease_lost"
    worker_id: str
    attempt: int


class JobCompleted(Event):
    """worker: the one happy end."""

    TYPE: ClassVar[str] = "job.completed"
    artifacts: tuple[ArtifactRef, ...] = ()
    timings: Timings = Timings()
    attempt: int = 1
    manifest: Manifest | None = None
    reproduction: Reproduction | None = None  # of a job that was made to reproduce another one


class JobFailed(Event):
    """worker or scheduler: no attempt is left, or none would help."""

    TYPE: ClassVar[str] = "job.failed"
    error: ErrorFacts
    attempts: int
    dead_lettered: bool = False


class JobCancelRequested(Event):
    """ingest: a running job was asked to stop."""

    TYPE: ClassVar[str] = "job.cancel_requested"
    by: str


class JobCancelled(Event):
    """ingest, worker or scheduler: the job ended because somebody asked."""

    TYPE: ClassVar[str] = "job.cancelled"
    how: Literal["queued", "cooperative", "killed"]
    by: str | None = None
    at_step: int | None = None
    partial_artifacts: tuple[ArtifactRef, ...] | None = None  # what it had handed over by then, stored like results


class JobExpired(Event):
    """scheduler: its start-by clock ran out while it waited."""

    TYPE: ClassVar[str] = "job.expired"
    start_by_at_ms: int
    waited_ms: int


class JobRetried(Event):
    """ingest: a new run of a finished job."""

    TYPE: ClassVar[str] = "job.retried"
    by: str
    from_status: str
    run: int
    max_attempts: int  # the count so far plus what this run may use: `attempt` is never reset


class JobDeadLettered(Event):
    """scheduler: set aside for a person."""

    TYPE: ClassVar[str] = "job.dead_lettered"
    cause: str


class JobRedriven(Event):
    """admin: taken back from the dead letters; `job.retried` follows in the same call and begins the run."""

    TYPE: ClassVar[str] = "job.redriven"
    cause: str  # code of the error that ended the run before
    operation_id: str
    reason: str = ""
    by: str = ""


class JobDiscarded(Event):
    """admin: not to be listed among the dead letters any more; it stays failed."""

    TYPE: ClassVar[str] = "job.discarded"
    cause: str
    operation_id: str
    reason: str = ""
    by: str = ""


class JobPriorityChanged(Event):
    """ingest: the job's band inside its tenant is another one from now on."""

    TYPE: ClassVar[str] = "job.priority_changed"
    priority: Priority
    previous: Priority
    by: str = ""


class JobMetadataChanged(Event):
    """ingest: the caller's metadata were replaced; the words themselves are in the body."""

    TYPE: ClassVar[str] = "job.metadata_changed"
    keys: tuple[str, ...] = ()
    by: str = ""


class JobWebhookChanged(Event):
    """ingest: what the job's own webhook subscribes to from now on; all events of the job are marked from here."""

    TYPE: ClassVar[str] = "job.webhook_changed"
    events: tuple[str, ...]
    by: str = ""


class JobRecharged(Event):
    """scheduler: the attempt runs far beyond its estimate; this much is charged for it from now on."""

    TYPE: ClassVar[str] = "job.recharged"
    gpu_ms: int


class JobForgotten(Event):
    """scheduler: retention is over; hash and body go in the same call, so that no state goes without an event."""

    TYPE: ClassVar[str] = "job.forgotten"


class JobErased(Event):
    """ingest: what the ended job was asked and answered is gone; its body goes in the same call, the rest after it."""

    TYPE: ClassVar[str] = "job.erased"
    by: str
    reason: str = ""  # stays for good: it must name nobody


class JobEventRejected(Event):
    """store library: a late or illegal write of a former owner, kept once per fence."""

    TYPE: ClassVar[str] = "job.event_rejected"
    offending_type: str
    why: str

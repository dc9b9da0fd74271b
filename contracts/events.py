"""The event catalogue: every fact that can be written to a log, as a frozen pydantic model.

Names are past tense; `TYPE` is the wire name, `VERSION` rises with a new required field. JSON is camelCase.
The log carries scheduling facts only: prompts, inputs, results and error texts live in the job's body.
Units are in the names; `_ms` without more is a duration, `_at_ms` a wall time of the server.
"""

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

Priority = Literal["low", "normal", "high", "urgent"]
QueueReason = Literal["retry", "lease_lost", "handed_back", "rate_limited", "withdrawn", "due", "redrive"]


class Event(BaseModel):
    """Base of all events. Unknown fields are ignored, so that an older reader survives a newer writer."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", ser_json_inf_nan="null"
    )
    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1

    def to_json(self) -> str:
        """Return the `d` field of the wire: camelCase JSON without nulls."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True).decode()


class Part(BaseModel):
    """Base of values inside events."""

    model_config = Event.model_config


class ArtifactRef(Part):
    """A stored file. `path` is below the public URL; the bytes are served until `expires_at_ms`."""

    id: str
    kind: str
    variant: str
    mime: str
    bytes: int
    sha256: str
    path: str
    expires_at_ms: int
    width: int | None = None
    height: int | None = None


class Timings(Part):
    """Where the time of a finished attempt went."""

    queued_ms: int | None = None
    model_load_ms: int | None = None
    run_ms: int | None = None
    upload_ms: int | None = None
    gpu_seconds: float | None = None


class ErrorFacts(Part):
    """Why an attempt ended, without any text of the author or the caller (that is in the body)."""

    code: str
    retryable: bool = False
    exit_code: int | None = None
    signal: int | None = None
    phase: str | None = None


class SlotInfo(Part):
    """One slot of a worker: what it may hold, in bytes of its device."""

    index: int
    device: str
    kind: str
    bytes: int
    models: tuple[str, ...] = ()


# -- a job's life -----------------------------------------------------------------------------------------------


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
    body_bytes: int = 0
    body_digest: str = ""  # salted SHA-256 of the body: proves what was asked, reveals nothing
    user_digest: str | None = None  # keyed digest of userId: the same user gets the same one
    key_hash: str | None = None  # of the Idempotency-Key
    webhook_events: tuple[str, ...] | None = None  # what the job's own webhook subscribes to
    traceparent: str | None = None


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


class JobEventRejected(Event):
    """store library: a late or illegal write of a former owner, kept once per fence."""

    TYPE: ClassVar[str] = "job.event_rejected"
    offending_type: str
    why: str


# -- milestones ---------------------------------------------------------------------------------------------------


class ModelLoadStarted(Event):
    """worker: a cold model is being loaded."""

    TYPE: ClassVar[str] = "model.load_started"
    model: str


class ModelLoadCompleted(Event):
    """worker: the model is resident."""

    TYPE: ClassVar[str] = "model.load_completed"
    model: str
    ms: int
    bytes: int | None = None


class PromptEncoded(Event):
    """author: the text is encoded."""

    TYPE: ClassVar[str] = "prompt.encoded"
    ms: int | None = None
    tokens: int | None = None


class LatentsDecoded(Event):
    """author: latents became pixels."""

    TYPE: ClassVar[str] = "latents.decoded"
    step: int | None = None
    shape: tuple[int, ...] | None = None
    ms: int | None = None


class FrameRendered(Event):
    """author: one frame of a video is done."""

    TYPE: ClassVar[str] = "frame.rendered"
    index: int
    total: int | None = None


class PreviewAvailable(Event):
    """worker: the job's preview file was replaced; only the reference is kept, older bytes are gone."""

    TYPE: ClassVar[str] = "preview.available"
    artifact_id: str
    path: str
    mime: str
    bytes: int
    step: int | None = None
    total_steps: int | None = None


class ThumbnailReady(Event):
    """worker: a thumbnail is stored."""

    TYPE: ClassVar[str] = "thumbnail.ready"
    artifact: ArtifactRef


class ArtifactUploadStarted(Event):
    """worker: the slot is free, this file is on its way to the store."""

    TYPE: ClassVar[str] = "artifact.upload_started"
    artifact_id: str
    kind: str
    variant: str
    bytes: int


class ArtifactUploaded(Event):
    """worker: this file is stored and readable."""

    TYPE: ClassVar[str] = "artifact.uploaded"
    artifact: ArtifactRef
    ms: int


class MilestoneReached(Event):
    """author: any milestone without a name of its own."""

    TYPE: ClassVar[str] = "milestone.reached"
    name: str
    data: dict[str, str | int | float | bool | None] | None = None


# -- workers, scheduler, webhooks, configuration ------------------------------------------------------------------


class WorkerRegistered(Event):
    """worker: a supervisor is up; its id is new at every boot."""

    TYPE: ClassVar[str] = "worker.registered"
    worker_id: str
    host: str
    pid: int
    slots: tuple[SlotInfo, ...]
    models: tuple[str, ...] = ()
    version: str = ""


class WorkerChanged(Event):
    """worker: what a choice may use has changed."""

    TYPE: ClassVar[str] = "worker.changed"
    worker_id: str
    slots: tuple[SlotInfo, ...]


class WorkerDraining(Event):
    """worker: takes nothing new."""

    TYPE: ClassVar[str] = "worker.draining"
    worker_id: str
    reason: str = ""


class WorkerDrained(Event):
    """worker: holds nothing and is gone."""

    TYPE: ClassVar[str] = "worker.drained"
    worker_id: str


class WorkerLost(Event):
    """scheduler: its heartbeat stood still for a whole lease; everything it held is given to others."""

    TYPE: ClassVar[str] = "worker.lost"
    worker_id: str
    silent_ms: int


class PolicyApplied(Event):
    """scheduler: the leader copies the configuration it will use from now on into its own log."""

    TYPE: ClassVar[str] = "policy.applied"
    position: str  # in the configuration log
    weights: dict[str, float] = {}


class SchedulerMismatch(Event):
    """scheduler: a decision was refused although the state is folded; the job leaves choice until repaired."""

    TYPE: ClassVar[str] = "scheduler.mismatch"
    job_id: str
    reason: str


class WebhookAttempted(Event):
    """notifier: one HTTP attempt with its outcome."""

    TYPE: ClassVar[str] = "webhook.attempted"
    delivery_id: str
    job_id: str
    event_type: str
    attempt: int
    outcome: str
    status: int | None = None
    ms: int = 0
    next_at_ms: int | None = None


class WebhookExhausted(Event):
    """notifier: the schedule is used up, or the endpoint is gone; the delivery is a dead letter."""

    TYPE: ClassVar[str] = "webhook.exhausted"
    delivery_id: str
    job_id: str
    event_type: str
    attempts: int
    outcome: str


class TenantLimits(Part):
    """Limits of a tenant; None means not set. Counted within a pool."""

    queued_jobs: int | None = None
    queued_bytes: int | None = None
    concurrency: int | None = None
    user_concurrency: int | None = None
    submits_per_minute: int | None = None
    gpu_seconds_per_day: int | None = None


class TenantCreated(Event):
    """admin: a tenant exists."""

    TYPE: ClassVar[str] = "tenant.created"
    tenant_id: str
    tier: Literal["free", "standard", "enterprise"] = "standard"
    weight: float = 1.0
    limits: TenantLimits = TenantLimits()
    reason: str = ""
    by: str = ""


class TenantUpdated(Event):
    """admin: the tenant as it is from now on."""

    TYPE: ClassVar[str] = "tenant.updated"
    tenant_id: str
    tier: Literal["free", "standard", "enterprise"] = "standard"
    weight: float = 1.0
    limits: TenantLimits = TenantLimits()
    reason: str = ""
    by: str = ""


class KeyCreated(Event):
    """admin: an API key; only its SHA-256 is stored."""

    TYPE: ClassVar[str] = "key.created"
    tenant_id: str
    key_id: str
    sha256: str
    scopes: tuple[str, ...]
    reason: str = ""
    by: str = ""


class KeyRevoked(Event):
    """admin: the key stops working."""

    TYPE: ClassVar[str] = "key.revoked"
    tenant_id: str
    key_id: str
    reason: str = ""
    by: str = ""


class PoolCreated(Event):
    """configuration: a pool and the code its ids carry, given once and never reused."""

    TYPE: ClassVar[str] = "pool.created"
    pool: str
    code: str


def _subclasses(root: type[Event]) -> list[type[Event]]:
    return [leaf for child in root.__subclasses__() for leaf in (child, *_subclasses(child))]


CATALOGUE: dict[str, type[Event]] = {model.TYPE: model for model in _subclasses(Event)}

DEFAULT_WEBHOOK_EVENTS = ("job.started", "job.cancelled", "job.completed", "job.failed", "job.expired")
WEBHOOK_EVENTS = frozenset(
    {
        "job.created",
        "job.scheduled",
        "job.queued",
        "job.assigned",
        "job.started",
        "job.progress",
        "job.attempt_failed",
        "job.retried",
        "job.cancel_requested",
        "job.cancelled",
        "job.completed",
        "job.failed",
        "job.expired",
        "job.dead_lettered",
        "model.load_started",
        "model.load_completed",
        "prompt.encoded",
        "latents.decoded",
        "frame.rendered",
        "preview.available",
        "thumbnail.ready",
        "artifact.upload_started",
        "artifact.uploaded",
        "milestone.reached",
    }
)

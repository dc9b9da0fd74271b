"""The shapes of all answers, as models: source of the OpenAPI document, and what tests hold real answers against.

Answers are built as plain dictionaries (`jobs.py`, `events.py`): building models would double the cost of a POST.
"""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from contracts.api import ArtifactSummary, JobStatus
from contracts.events import Priority
from contracts.tenant import Tier

Anything = object  # some shapes have a field of that name


class Shape(BaseModel):
    """Base of the shapes: a field that is not here must not be in an answer either."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class Fault(Shape):
    """One thing wrong in a request."""

    pointer: str
    code: str
    message: str


class ProblemDocument(BaseModel):
    """RFC 9457, with the members every problem of this service has."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)
    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    retryable: bool
    errors: list[Fault] | None = None


class QueuePlace(Shape):
    """Where the job waits; null where nobody knows."""

    pool: str
    position: int | None
    eta_seconds: float | None
    eta_basis: str | None


class Assignment(Shape):
    """The worker the job was handed to."""

    worker_id: str
    slot: int | None


class JobError(Shape):
    """How the last attempt failed."""

    code: str
    message: str | None
    retryable: bool
    attempt: int
    phase: str | None
    exit_code: int | None
    signal: int | None


class JobTimings(Shape):
    """Where the time went; null until the job is completed."""

    queued_ms: int | None
    model_load_ms: int | None
    run_ms: int | None
    upload_ms: int | None
    gpu_seconds: float | None


class JobUrls(Shape):
    """Where to go on."""

    self: str
    cancel: str
    result: str
    events: str
    artifacts: str


class Job(Shape):
    """A job."""

    id: str
    object: str
    status: JobStatus
    phase: str | None
    progress: float = Field(ge=0, le=100)
    step: int | None
    total_steps: int | None
    user_id: str | None
    tenant_id: str
    model: str
    prompt: str | None
    input: dict[str, Anything]
    priority: Priority
    queue: QueuePlace
    assignment: Assignment | None
    attempt: int
    max_attempts: int
    cancel_requested_at: str | None
    dead_lettered: bool
    result_url: str | None
    artifacts: list[ArtifactSummary]
    error: JobError | None
    timings: JobTimings
    metadata: dict[str, str]
    sequence: int
    position: str
    created_at: str
    scheduled_for: str | None
    started_at: str | None
    completed_at: str | None
    expires_at: str | None
    urls: JobUrls


class Page(Shape):
    """Base of lists."""

    has_more: bool
    next_cursor: str | None


class JobPage(Page):
    """Jobs, newest first."""

    data: list[Job]


class JobResult(Shape):
    """What a completed job gave back."""

    job_id: str
    status: JobStatus
    result: dict[str, Anything]
    result_url: str | None
    artifacts: list[ArtifactSummary]


class ArtifactPage(Page):
    """Stored files of a job."""

    data: list[ArtifactSummary]


class Actor(Shape):
    """Who wrote an event."""

    type: str
    id: str


class EventRecord(Shape):
    """One event."""

    id: str
    type: str
    version: int
    position: str
    sequence: int
    time: str
    recorded_time: str
    subject: str
    tenant_id: str
    source: str
    actor: Actor
    fence: int
    attempt: int
    correlation_id: str
    data: dict[str, Anything]


class EventPage(Page):
    """Events of a job, oldest first."""

    data: list[EventRecord]


class Model(Shape):
    """A model that may be asked for; `inputs` is the JSON Schema of {"prompt": ..., **input}."""

    name: str
    version: str
    pools: list[str]
    vram_mib: int
    max_batch: int
    timeout_seconds: float
    silence_seconds: float | None
    resources: dict[str, int]
    inputs: dict[str, Anything]


class ModelPage(Page):
    """All models."""

    data: list[Model]


class LimitValues(Shape):
    """What the tenant may hold at once."""

    queued_jobs: int
    queued_bytes: int
    body_bytes: int


class LimitUse(Shape):
    """What the tenant holds in one pool."""

    queued_jobs: int
    queued_bytes: int


class Limits(Shape):
    """Limits and their use, by pool."""

    tenant_id: str
    tier: Tier
    weight: float
    limits: LimitValues
    use: dict[str, LimitUse]


class TenantLimitsShown(Shape):
    """The tenant's own limits; null: the installation's default holds."""

    queued_jobs: int | None
    queued_bytes: int | None


class Tenant(Shape):
    """A tenant. `webhookSecret` is there once, in the answer that created it."""

    id: str
    object: str
    tier: Tier
    weight: float
    limits: TenantLimitsShown
    created_at: str
    webhook_secret: str | None = None


class TenantPage(Page):
    """Tenants by id."""

    data: list[Tenant]


class Key(Shape):
    """An API key. `key` is there once, in the answer that created it."""

    id: str
    object: str
    tenant_id: str
    scopes: list[str]
    created_at: str
    key: str | None = None


class KeyPage(Page):
    """Keys of a tenant by id."""

    data: list[Key]


class Worker(Shape):
    """A supervisor with its devices."""

    id: str
    object: str
    pool: str
    host: str | None
    pid: int | None
    state: str | None
    last_beat_at: str | None
    beats: int
    version: str | None
    held: list[dict[str, Anything]]
    devices: list[dict[str, Anything]]


class WorkerPage(Page):
    """All workers."""

    data: list[Worker]


class Health(Shape):
    """The process answers."""

    status: str


class ReadyVerdict(Shape):
    """The cached verdict; `reason` is empty when ready."""

    status: str
    reason: str
    age_seconds: float
    checks: dict[str, Anything]

"""The shapes of all answers, as models: source of the OpenAPI document, and what tests hold real answers against.

Answers are built as plain dictionaries (`jobs.py`, `events.py`): building models would double the cost of a POST.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from contracts.api import ArtifactSummary, JobStatus
from contracts.events import Priority

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
    """Where the job waits. Position 1 is served next; null: it does not wait, or nobody knows."""

    pool: str
    position: int | None
    eta_seconds: float | None
    eta_basis: str | None


class WaitingReason(Shape):
    """Why a job does not start now, and what would have to change."""

    code: str
    detail: str
    since: str | None


class PossibleSpot(Shape):
    """A slot that could run the job; `freeInSeconds` 0: it is free now."""

    worker_id: str
    slot: int
    device: str
    kind: str
    warm: bool
    free_in_seconds: float


class JobExplanation(Shape):
    """Why a job is not running. `ahead`: jobs that would be served before it as things stand."""

    job_id: str
    pool: str
    state: JobStatus
    reasons: list[WaitingReason]
    ahead: int | None
    eta_seconds: float | None
    eta_basis: str | None
    would_run_on: list[PossibleSpot]


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
    requested_bytes: int | None
    free_bytes: int | None
    reserved_bytes: int | None


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
    explain: str
    stream: str
    logs: str


class JobManifest(Shape):
    """What a completed job ran with; null: could not be read. `files`: SHA-256 of input files by JSON Pointer."""

    model_hash: str | None
    code_version: str | None
    device: str | None
    batch_size: int
    seed: int | None
    files: dict[str, str]


class JobReproduction(Shape):
    """How near the job came to another one; `match` null: not known yet. `changed`: of the manifest, after all."""

    of: str
    match: Literal["exact", "close", "different"] | None
    distance: float | None = Field(ge=0, le=1)
    changed: list[str]


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
    manifest: JobManifest | None
    reproduction: JobReproduction | None
    metadata: dict[str, str]
    sequence: int
    position: str
    created_at: str
    scheduled_for: str | None
    started_at: str | None
    completed_at: str | None
    expires_at: str | None
    erased_at: str | None  # then what was asked and answered is gone
    urls: JobUrls


class Page(Shape):
    """Base of lists."""

    has_more: bool
    next_cursor: str | None


class JobPage(Page):
    """Jobs, newest first."""

    data: list[Job]


class ForgottenJob(Shape):
    """What is left of a job whose retention is over; the status is the last one seen."""

    id: str
    object: str
    status: JobStatus | None
    expired: bool


class BatchItem(Shape):
    """What became of one item: the job, or the problem. The two flags are the headers of a single answer."""

    index: int
    status: int
    job: Job | ForgottenJob | None
    problem: ProblemDocument | None
    idempotent_replayed: bool
    deduplicated: bool


class BatchReply(Shape):
    """One entry for each item, in the order they were sent."""

    data: list[BatchItem]


class Failure(Shape):
    """A job that an operation could not do its work on, and the code of the problem."""

    id: str
    code: str


class Operation(Shape):
    """What one call of an operation did. The counts are those of this call; `sample` are the first jobs matched."""

    id: str
    object: str
    state: Literal["in_progress", "completed"]
    dry_run: bool
    matched: int
    cancelled: int
    requested: int
    skipped: int
    failed: int
    sample: list[str]
    failures: list[Failure]
    has_more: bool
    next_cursor: str | None


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


class LogLine(Shape):
    """A line that an attempt printed; `offset` is where it begins in the attempt's log, in bytes."""

    fence: int
    offset: int
    text: str


class LogPage(Page):
    """What a job's attempts printed, in order."""

    data: list[LogLine]


class UploadUrls(Shape):
    """Where to go on."""

    complete: str
    artifact: str


class UploadTicket(Shape):
    """Where to send a file, and until when."""

    id: str
    object: Literal["upload"]
    method: Literal["PUT"]
    url: str
    headers: dict[str, str]
    bytes: int
    expires_at: str
    urls: UploadUrls


class Actor(Shape):
    """Who wrote an event."""

    type: str
    id: str


class EventRecord(Shape):
    """One event. `tenantId` is null where it belongs to none, `hash` until it is sealed; lists have none."""

    id: str
    type: str
    version: int
    position: str
    sequence: int
    time: str
    recorded_time: str
    subject: str
    tenant_id: str | None
    source: str
    actor: Actor
    fence: int
    attempt: int
    correlation_id: str
    data: dict[str, Anything]
    hash: str | None = None


class EventPage(Page):
    """Events, in the order asked for."""

    data: list[EventRecord]


class StreamToken(Shape):
    """A token that opens streams until it expires."""

    token: str
    expires_at: str


class EventType(Shape):
    """A type of events. `webhook`: whether webhooks are told of it; null: never."""

    type: str
    version: int
    about: str
    webhook: Literal["default", "optional", "operational"] | None


class EventTypePage(Page):
    """All types."""

    data: list[EventType]


class EventTypeDetails(EventType):
    """A type with the JSON Schema of its `data`, and an event as an example."""

    model_config = ConfigDict(protected_namespaces=())
    schema_: dict[str, Anything] = Field(alias="schema")
    example: EventRecord

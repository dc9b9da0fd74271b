"""The public request and webhook bodies: what a caller may send and what a receiver gets.

Promises: what `body` promises, and that a field is listed here only if something obeys it. What needs the model, the
clock or the settings (schema of `input`, pool, time limits of `runAt`, the webhook's address) is judged by ingest.
"""

from typing import Annotated, Literal, LiteralString, Self

from pydantic import AfterValidator, BeforeValidator, Field, SkipValidation, model_validator
from pydantic_core import PydanticCustomError

from contracts.body import Body, Instant, Metadata, Name, Reason
from contracts.events import WEBHOOK_EVENTS, Priority

MAX_ATTEMPTS = 20
DEFAULT_MAX_ATTEMPTS = 3
MAX_BATCH_ITEMS = 100
MAX_CANCELLED_IDS = 1_000
DAY_S = 86_400

JobStatus = Literal["scheduled", "queued", "in_progress", "completed", "failed", "cancelled", "expired"]


def _contradiction(pointer: str, message: LiteralString) -> PydanticCustomError:
    return PydanticCustomError("contradiction", message, {"pointer": pointer})


def _known_event(name: str) -> str:
    # A misspelt name would subscribe to nothing, and nobody would find out why no webhook comes.
    if name not in WEBHOOK_EVENTS:
        raise PydanticCustomError("literal_error", "must be the name of an event that webhooks carry")
    return name


EventName = Annotated[str, AfterValidator(_known_event), Field(json_schema_extra={"enum": sorted(WEBHOOK_EVENTS)})]


class JobPolicy(Body):
    """Clocks and attempts of one job."""

    start_by_seconds: int | None = Field(default=None, ge=1, le=30 * DAY_S)
    execution_timeout_seconds: int | None = Field(default=None, ge=1, le=7 * DAY_S)
    max_attempts: int = Field(default=DEFAULT_MAX_ATTEMPTS, ge=1, le=MAX_ATTEMPTS)
    max_queue_length: int | None = Field(default=None, ge=1, le=10_000_000)  # open jobs of the tenant in the pool


class JobDedup(Body):
    """One job at a time under this key: a later submission is answered with the job that holds it.

    `in_flight`: until that job has ended; `ttl`: for `ttlSeconds`, however it ends.
    """

    key: Name
    mode: Literal["in_flight", "ttl"] = "in_flight"
    ttl_seconds: int = Field(default=60, ge=1, le=7 * DAY_S)


class GenerationJobData(Body):
    """Body of `POST /v1/jobs`: who asks, for what, where to call back; all else lives in `input`."""

    user_id: Name
    prompt: str = Field(max_length=65_536)
    model: Annotated[str, Field(min_length=1, max_length=128)]
    webhook_url: Annotated[str, Field(min_length=1, max_length=2_048)] | None = None
    input: dict[str, object] = Field(default_factory=dict, max_length=256)
    webhook_events: Annotated[tuple[EventName, ...], Field(strict=False, max_length=64)] | None = None
    priority: Priority = "normal"
    pool: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    policy: JobPolicy = JobPolicy()
    run_at: Instant | None = None
    dedup: JobDedup | None = None
    metadata: Metadata = Field(default_factory=dict)

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if "prompt" in self.input:
            raise _contradiction("/input/prompt", "the prompt belongs at the top level, not in input")
        if self.webhook_events == ():
            raise _contradiction("/webhookEvents", "names no event; leave it out for the default ones")
        if self.webhook_events is not None and self.webhook_url is None:
            raise _contradiction("/webhookEvents", "needs a webhookUrl: nobody would be told")
        return self


class JobBatch(Body):
    """Body of `POST /v1/jobs/batch`. An item is judged when its turn comes: one that is wrong refuses itself only."""

    jobs: Annotated[
        tuple[SkipValidation[GenerationJobData], ...], Field(strict=False, min_length=1, max_length=MAX_BATCH_ITEMS)
    ]


class JobPatch(Body):
    """Body of `PATCH /v1/jobs/{id}`: what is left out stays as it is; metadata are replaced as a whole."""

    priority: Priority | None = None
    metadata: Metadata | None = None
    webhook_events: Annotated[tuple[EventName, ...], Field(strict=False, max_length=64)] | None = None

    @model_validator(mode="after")
    def _refuse_silence(self) -> Self:
        if self.webhook_events == ():
            raise _contradiction("/webhookEvents", "names no event")
        return self


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class JobsFilter(Body):
    """The filters of `GET /v1/jobs` as a body; {} means all. Only jobs that have not ended can be meant."""

    status: (
        Annotated[
            tuple[Literal["scheduled", "queued", "in_progress"], ...],
            BeforeValidator(_several), Field(strict=False, min_length=1, max_length=3),
        ]
        | None
    ) = None  # fmt: skip
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    user_id: Name | None = None
    priority: Priority | None = None
    pool: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    q: Annotated[str, Field(pattern=r"^job_[0-9a-z]{0,28}$")] | None = None
    metadata: Metadata = Field(default_factory=dict)


class JobsCancel(Body):
    """Body of `POST /v1/jobs/cancel`: which jobs, by their ids or by a filter; `dryRun` only counts."""

    ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...],
        Field(strict=False, min_length=1, max_length=MAX_CANCELLED_IDS),
    ] | None = None  # fmt: skip
    filter: JobsFilter | None = None
    dry_run: bool = False
    cursor: Annotated[str, Field(max_length=512)] | None = None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise _contradiction("", "needs either ids or a filter; the filter {} means all jobs that have not ended")
        if self.cursor is not None and self.filter is None:
            raise _contradiction("/cursor", "goes with the filter it was given for")
        return self


class JobsErase(Body):
    """Body of `POST /v1/jobs/erase`: whose jobs, and why. The reason stays in the log for good: name nobody in it."""

    user_id: Name
    reason: Reason = ""
    dry_run: bool = False
    cursor: Annotated[str, Field(max_length=1024)] | None = None


class UploadCreate(Body):
    """Body of `POST /v1/uploads`: what is about to be sent, and what it is held against."""

    file_name: Name
    content_type: Annotated[str, Field(pattern=r"^[a-z0-9!#$&^_.+-]{1,63}/[a-z0-9!#$&^_.+-]{1,63}$")]
    bytes: int = Field(ge=1, le=1 << 50)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class StreamTokenCreate(Body):
    """Body of `POST /v1/stream-tokens`: what a page may follow, and for how long."""

    job_ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=100)] | None = None
    user_id: Name | None = None
    ttl_seconds: int = Field(default=300, ge=1, le=900)


class ArtifactSummary(Body):
    """One stored file as webhooks and lists show it."""

    id: str
    kind: str
    variant: str
    mime: str | None = None
    width: int | None = None
    height: int | None = None
    bytes: int
    sha256: str
    url: str
    expires_at: str | None = None


class WebhookPayload(Body):
    """Body of a webhook: the user's four fields on top, the Standard Webhooks envelope beside them.

    A receiver written for `{jobId, status, progress, resultUrl}` works unchanged.
    """

    type: str
    timestamp: str
    job_id: str
    status: JobStatus
    progress: float = Field(ge=0, le=100)
    result_url: str | None = None
    sequence: int = Field(ge=1)
    position: str
    tenant_id: str
    data: dict[str, object] = Field(default_factory=dict)

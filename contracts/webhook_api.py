"""The bodies of the public API about webhooks; the rules of `contracts.body` hold for them.

Whether a URL may be called needs the settings and the tenant's hosts, and is judged by ingest.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from contracts.api import DAY_S
from contracts.body import Body, Instant, Reason
from contracts.endpoints import SUBSCRIBABLE, is_pattern
from contracts.events import DEFAULT_WEBHOOK_EVENTS, Ordering, WebhookFormat
from contracts.webhook_headers import headers_fault, name_fault, value_fault

MAX_OVERLAP_S = 30 * DAY_S

DeliveryState = Literal[
    "waiting",
    "blocked",
    "held",
    "delivered",
    "exhausted",
    "gone",
    "endpoint_deleted",
    "superseded",
    "unreadable",
    "erased",
]


def _fault(code: str, sentence: str, pointer: str = "") -> PydanticCustomError:
    return PydanticCustomError(code, "{sentence}", {"sentence": sentence, **({"pointer": pointer} if pointer else {})})


def _pattern(text: str) -> str:
    # One that means nothing would be a silence that nobody can explain.
    if not is_pattern(text):
        raise _fault("literal_error", "must be an event that webhooks carry, a family like job.*, or *")
    return text


def _header_name(text: str) -> str:
    if sentence := name_fault(text):
        raise _fault("header_not_allowed", sentence)
    return text


def _header_value(text: str) -> str:
    if sentence := value_fault(text):
        raise _fault("header_not_allowed", sentence)
    return text


def _headers(headers: dict[str, str]) -> dict[str, str]:
    if sentence := headers_fault(headers):
        raise _fault("header_not_allowed", sentence)
    return headers


def _events(events: tuple[str, ...]) -> tuple[str, ...]:
    if not events:
        raise _fault("contradiction", "names no event; disable the endpoint to have none")
    return events


Url = Annotated[str, Field(min_length=1, max_length=2_048)]
EventPattern = Annotated[
    str, AfterValidator(_pattern), Field(max_length=64, examples=["job.*", *sorted(SUBSCRIBABLE)[:1]])
]
EventPatterns = Annotated[tuple[EventPattern, ...], AfterValidator(_events), Field(strict=False, max_length=64)]
Headers = Annotated[
    dict[Annotated[str, AfterValidator(_header_name)], Annotated[str, AfterValidator(_header_value)]],
    AfterValidator(_headers),
]
RateLimit = Annotated[float, Field(ge=0.01, le=10_000, allow_inf_nan=False)]
IntervalMs = Annotated[int, Field(ge=0, le=3_600_000)]
MaxInFlight = Annotated[int, Field(ge=1, le=1_000)]
Description = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class EndpointCreate(Body):
    """Body of `POST /v1/webhook-endpoints`."""

    url: Url
    events: EventPatterns = DEFAULT_WEBHOOK_EVENTS
    format: WebhookFormat = "standard"
    ordering: Ordering = "best-effort"
    headers: Headers = Field(default_factory=dict)
    rate_limit: RateLimit | None = None  # attempts in a second
    min_interval_ms: IntervalMs = 1_000  # between two job.progress of one job; the newest is sent
    max_in_flight: MaxInFlight | None = None  # attempts at the same time; none: as the installation has it
    ed25519: bool = False  # sign with the installation's key, too
    description: Description = ""
    disabled: bool = False


class EndpointPatch(Body):
    """Body of `PATCH /v1/webhook-endpoints/{id}`: what is left out stays; headers and events are replaced as a whole.

    null takes a limit away.
    """

    url: Url | None = None
    events: EventPatterns | None = None
    format: WebhookFormat | None = None
    ordering: Ordering | None = None
    headers: Headers | None = None
    rate_limit: RateLimit | None = None
    min_interval_ms: IntervalMs | None = None
    max_in_flight: MaxInFlight | None = None
    ed25519: bool | None = None
    description: Description | None = None
    disabled: bool | None = None


class SecretRotate(Body):
    """Body of a rotation: for how long the old secret signs beside the new one; 0 ends it at once."""

    overlap_seconds: Annotated[int, Field(ge=0, le=MAX_OVERLAP_S)] = DAY_S
    reason: Reason = ""


class Since(Body):
    """Body of `recover` and `backfill`: which moment on, and up to which."""

    since: Instant
    until: Instant | None = None
    reason: Reason = ""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.until is not None and self.until <= self.since:
            raise _fault("contradiction", "must be later than since", "/until")
        return self


class DeliveriesFilter(Body):
    """Which deliveries; {} means all that ended without success, or are held."""

    tenant_id: Annotated[str, Field(pattern=r"^t_[a-z0-9][a-z0-9_-]{0,47}$")] | None = None
    endpoint_id: Annotated[str, Field(pattern=r"^wh_[0-9a-z]{26}$")] | None = None
    job_id: Annotated[str, Field(pattern=r"^job_[0-9a-z]{26}[a-z]{2}$")] | None = None
    event_type: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    state: DeliveryState | None = None
    since: Instant | None = None
    until: Instant | None = None


class DeliveriesRedeliver(Body):
    """Body of `POST /admin/v1/webhook-deliveries/redeliver`: which deliveries; `dryRun` only counts."""

    filter: DeliveriesFilter
    dry_run: bool = False
    cursor: Annotated[str, Field(max_length=512)] | None = None
    reason: Reason = ""

"""The shapes of answers about webhooks."""

from contracts.events import DisabledWhy, Ordering, WebhookFormat
from contracts.webhook_api import DeliveryState
from services.ingest.views.schemas import Page, Shape


class _Told(Shape):
    id: str
    object: str
    origin: str
    events: list[str]
    format: WebhookFormat
    ordering: Ordering
    headers: dict[str, str]
    rate_limit: float | None
    min_interval_ms: int
    max_in_flight: int | None
    ed25519: bool
    description: str
    disabled: bool
    disabled_why: DisabledWhy | None
    disabled_at: str | None
    created_at: str


class WebhookEndpoint(_Told):
    """An endpoint; values of headers are masked. `secret` is there once, in the answer that created it."""

    url: str | None
    secret: str | None = None


class WebhookEndpointPage(Page):
    """The tenant's endpoints, oldest first."""

    data: list[WebhookEndpoint]


class AdminWebhookEndpoint(_Told):
    """An endpoint of some tenant; of its URL only the origin is shown."""

    tenant_id: str


class AdminWebhookEndpointPage(Page):
    """Endpoints of all tenants by id."""

    data: list[AdminWebhookEndpoint]


class RotatedSecret(Shape):
    """A new secret, in this answer only; until then the old one signs, too."""

    object: str
    secret: str
    old_secret_until: str


class WebhookKey(Shape):
    """A public key in both notations."""

    key: str
    jwk: dict[str, str]


class WebhookKeys(Shape):
    """The keys that sign as `v1a`; `keys` is a JSON Web Key Set (RFC 7517)."""

    webhook_keys: list[str]
    keys: list[dict[str, str]]


class WebhookDelivery(Shape):
    """One event on its way to one endpoint. `nextAttemptAt`: null where none is planned."""

    id: str
    object: str
    endpoint_id: str | None
    job_id: str | None
    event_type: str | None
    message_id: str | None
    state: DeliveryState
    attempts: int
    last_outcome: str | None
    next_attempt_at: str | None
    planned_at: str | None
    ended_at: str | None


class WebhookDeliveryPage(Page):
    """Deliveries, newest job first."""

    data: list[WebhookDelivery]


class WebhookDeliveryDetails(WebhookDelivery):
    """A delivery with the exact text it sends, and the URL where it is a job's own."""

    url: str | None
    payload: str | None


class WebhookAttempt(Shape):
    """One attempt: what came of it, how long it took, and what is kept of the answer."""

    attempt: int
    at: str | None
    ms: int | None
    status: int | None
    outcome: str | None
    response_headers: dict[str, str] | None
    response_body: str | None


class WebhookAttemptPage(Page):
    """The attempts of a delivery, first to last."""

    data: list[WebhookAttempt]


class JobDelivery(WebhookDelivery):
    """A delivery of a job with each of its attempts."""

    attempts_made: list[WebhookAttempt]


class JobDeliveryPage(Page):
    """A job's deliveries."""

    data: list[JobDelivery]


class AdminWebhookDelivery(WebhookDelivery):
    """A delivery of some tenant."""

    tenant_id: str


class AdminWebhookDeliveryPage(Page):
    """Deliveries by tenant, then newest job first."""

    data: list[AdminWebhookDelivery]


class FailedItem(Shape):
    """What could not be done, and why."""

    id: str
    code: str


class RedeliverOperation(Shape):
    """What one call did; while `hasMore`, call again with `nextCursor`."""

    id: str
    object: str
    state: str
    dry_run: bool
    matched: int
    redelivered: int
    failed: int
    failures: list[FailedItem]
    sample: list[str]
    has_more: bool
    next_cursor: str | None


class RecoverOperation(Shape):
    """What one call did; while `hasMore`, call again with the same body."""

    id: str
    object: str
    state: str
    has_more: bool
    recovered: int


class StartedOperation(Shape):
    """Something that goes on by itself."""

    id: str
    object: str
    state: str


class WebhookBackfill(Shape):
    """A backfill and how far it is: `planned` deliveries so far."""

    id: str
    since: str
    until: str
    asked_at: str
    planned: int
    state: str


class WebhookEndpointStats(Shape):
    """How an endpoint does. `nextAttemptAfter`: nothing is sent before, as its circuit or its receiver wants it."""

    object: str
    endpoint_id: str
    window_hours: int
    attempts: int
    delivered: int
    failed: int
    success_rate: float | None
    p95_ms: int | None
    consecutive_failures: int
    failing_since: str | None
    last_success_at: str | None
    circuit: str
    next_attempt_after: str | None
    waiting: int
    in_flight: int
    given_up_or_held: int
    oldest_due_at: str | None
    backfills: list[WebhookBackfill]

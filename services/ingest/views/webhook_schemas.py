"""The shapes of answers about webhooks."""

from contracts.events import DisabledWhy, Ordering, WebhookFormat
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

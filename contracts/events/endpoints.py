"""Webhook endpoints of tenants. The log names an origin and the names of headers; URL, header values and secrets
lie in the kept secret of the endpoint (`contracts.endpoints`): any of them may hold a token.
"""

from typing import ClassVar, Literal

from contracts.events.root import Acted, Event

WebhookFormat = Literal["standard", "flat", "cloudevents"]
Ordering = Literal["best-effort", "strict"]
DisabledWhy = Literal["manual", "gone", "failing"]
RedeliveryHow = Literal["redeliver", "recover", "backfill"]


class _OfEndpoint(Event):
    tenant_id: str
    endpoint_id: str


class _EndpointAsItIs(_OfEndpoint):
    origin: str  # scheme, host and port: all that the log says of its URL
    events: tuple[str, ...]
    format: WebhookFormat = "standard"
    ordering: Ordering = "best-effort"
    header_names: tuple[str, ...] = ()
    rate_per_s: float | None = None
    min_interval_ms: int = 1_000  # between two `job.progress` of one job
    max_in_flight: int | None = None
    ed25519: bool = False  # signed with the key of the installation, too
    description: str = ""


class EndpointCreated(_EndpointAsItIs):
    """ingest: a tenant wants these events sent there."""

    TYPE: ClassVar[str] = "webhook.endpoint_created"
    by: str = ""


class EndpointUpdated(_EndpointAsItIs):
    """ingest: the endpoint as it is from now on."""

    TYPE: ClassVar[str] = "webhook.endpoint_updated"
    changed: tuple[str, ...] = ()  # names of what differs, `url` and `headers` among them
    by: str = ""


class EndpointDeleted(_OfEndpoint):
    """ingest: the endpoint is gone; what waits for it ends as `endpoint_deleted`."""

    TYPE: ClassVar[str] = "webhook.endpoint_deleted"
    by: str = ""


class EndpointEnabled(_OfEndpoint):
    """ingest: events are sent to it again."""

    TYPE: ClassVar[str] = "webhook.endpoint_enabled"
    by: str = ""


class EndpointDisabled(_OfEndpoint):
    """ingest or notifier: nothing is sent to it any more; what waits for it is held."""

    TYPE: ClassVar[str] = "webhook.endpoint_disabled"
    why: DisabledWhy
    by: str = ""
    since_ms: int | None = None  # failing: of the first failure after the last success
    failures: int | None = None  # in a row
    delivery_id: str | None = None  # the last one that failed, and what came of it
    job_id: str | None = None
    event_type: str | None = None
    message_id: str | None = None
    status: int | None = None
    outcome: str | None = None


class EndpointSecretRotated(_OfEndpoint):
    """ingest: a new secret signs; the one before signs, too, until then."""

    TYPE: ClassVar[str] = "webhook.endpoint_secret_rotated"
    old_until_ms: int
    by: str = ""
    reason: str | None = None


class EndpointFailing(_OfEndpoint):
    """notifier: every attempt has failed for so long a part of the time after which the endpoint is disabled."""

    TYPE: ClassVar[str] = "webhook.endpoint_failing"
    percent: int
    since_ms: int
    disables_at_ms: int
    failures: int
    delivery_id: str
    job_id: str
    event_type: str
    message_id: str
    attempts: int
    outcome: str
    status: int | None = None


class RedeliveryRequested(Acted):
    """ingest: somebody wants deliveries sent again: one, those of an endpoint that failed, or all from the log."""

    TYPE: ClassVar[str] = "webhook.redelivery_requested"
    tenant_id: str
    how: RedeliveryHow
    endpoint_id: str | None = None
    delivery_id: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    reason: str = ""
    by: str = ""


class TenantWebhookSecretRotated(Acted):
    """admin: a new secret signs the webhooks of the tenant's jobs; the one before signs, too, until then."""

    TYPE: ClassVar[str] = "tenant.webhook_secret_rotated"
    tenant_id: str
    old_until_ms: int
    reason: str = ""
    by: str = ""

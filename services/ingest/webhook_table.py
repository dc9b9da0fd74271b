"""The rows of the route table about webhooks."""

from contracts.webhook_api import DeliveriesRedeliver, EndpointCreate, EndpointPatch, SecretRotate, Since
from services.ingest.handlers.admin_webhooks import AdminWebhookHandlers
from services.ingest.handlers.deliveries import DeliveryHandlers
from services.ingest.handlers.endpoint_actions import EndpointActionHandlers
from services.ingest.handlers.endpoint_sending import EndpointSendingHandlers
from services.ingest.handlers.endpoints import EndpointHandlers
from services.ingest.handlers.webhook_keys import WebhookKeysHandler
from services.ingest.routes import PAGED, Parameter, Route
from services.ingest.views import webhook_schemas as about

_FILTERS = (
    Parameter("endpointId", "Only to this endpoint."),
    Parameter("jobId", "Only of this job."),
    Parameter("eventType", "Only of events of this type."),
    Parameter("state", "Only in this state."),
    Parameter("since", "RFC 3339: planned then or later."),
    Parameter("until", "RFC 3339: planned before then."),
)
_ENDPOINTS, _READ, _WRITE = "/v1/webhook-endpoints", "webhooks:read", "webhooks:write"
_ENDPOINT = _ENDPOINTS + "/{id}"
_ONE = ("endpoint_not_found", "bad_parameter")
_CHANGED = (*_ONE, "version_mismatch")


def endpoint_routes(endpoints: EndpointHandlers, keys: WebhookKeysHandler) -> tuple[Route, ...]:
    """Return the routes of endpoints as they are."""
    return (
        Route(
            "POST", _ENDPOINTS, endpoints.create_endpoint, "Create a webhook endpoint.", _WRITE,
            body=EndpointCreate, reply=about.WebhookEndpoint,
            replies=((201, "Created; its secret is in this answer only."), (200, "A repeat of an Idempotency-Key.")),
            problems=(
                "webhook_url_not_allowed", "quota_exceeded", "idempotency_mismatch", "missing_idempotency_key",
                "endpoint_not_found", "version_mismatch",
            ),
            parameters=(
                Parameter("Idempotency-Key", "Repeating a request with it never makes a second endpoint.", "header"),
            ),
        ),
        Route("GET", _ENDPOINTS, endpoints.list_endpoints, "List webhook endpoints.", _READ,
              reply=about.WebhookEndpointPage, problems=("bad_cursor", "bad_parameter"), parameters=PAGED),
        Route("GET", _ENDPOINT, endpoints.get_endpoint, "Show a webhook endpoint.", _READ,
              reply=about.WebhookEndpoint, problems=_ONE),
        Route("PATCH", _ENDPOINT, endpoints.patch_endpoint, "Change a webhook endpoint.", _WRITE,
              body=EndpointPatch, reply=about.WebhookEndpoint, problems=(*_CHANGED, "webhook_url_not_allowed")),
        Route("DELETE", _ENDPOINT, endpoints.delete_endpoint, "Delete a webhook endpoint.", _WRITE,
              replies=((204, "It is gone; what waited for it is not sent."),), problems=_CHANGED),
        Route("GET", "/.well-known/webhook-keys.json", keys.webhook_keys, "Show the keys that sign as v1a.",
              reply=about.WebhookKeys, problems=("bad_parameter", "log_unavailable")),
    )  # fmt: skip


def endpoint_action_routes(actions: EndpointActionHandlers) -> tuple[Route, ...]:
    """Return the routes that do something with an endpoint, or with a tenant's own secret."""
    rotated = ((200, "The new secret, in this answer only."),)
    return (
        Route("POST", _ENDPOINT + "/rotate-secret", actions.rotate_endpoint_secret, "Give an endpoint a new secret.",
              _WRITE, body=SecretRotate, needs_body=False, reply=about.RotatedSecret, replies=rotated,
              problems=_CHANGED),
        Route("POST", _ENDPOINT + "/enable", actions.enable_endpoint, "Send to an endpoint again.", _WRITE,
              reply=about.WebhookEndpoint, problems=_CHANGED),
        Route("POST", _ENDPOINT + "/disable", actions.disable_endpoint, "Send nothing to an endpoint any more.",
              _WRITE, reply=about.WebhookEndpoint, problems=_CHANGED),
        Route("POST", "/v1/webhook-secret/rotate", actions.rotate_own_secret,
              "Give the tenant a new secret for the webhooks of its jobs.", _WRITE, body=SecretRotate,
              needs_body=False, reply=about.RotatedSecret, replies=rotated,
              problems=("tenant_not_found", "bad_parameter", "version_mismatch")),
        Route("POST", "/admin/v1/tenants/{tenant}/webhook-secret/rotate", actions.rotate_tenant_secret,
              "Give a tenant a new secret for the webhooks of its jobs.", "admin", body=SecretRotate,
              needs_body=False, reply=about.RotatedSecret, replies=rotated,
              problems=("tenant_not_found", "bad_parameter", "version_mismatch")),
    )  # fmt: skip


def endpoint_sending_routes(sending: EndpointSendingHandlers) -> tuple[Route, ...]:
    """Return the routes that lead to deliveries of an endpoint, and what came of them."""
    wrong = (*_ONE, "endpoint_disabled")
    return (
        Route("POST", _ENDPOINT + "/test", sending.test_endpoint, "Send a made-up event to an endpoint.", _WRITE,
              reply=about.WebhookDelivery, replies=((202, "It will be sent; the delivery that does so."),),
              problems=(*wrong, "webhook_url_not_allowed", "delivery_not_found")),
        Route("POST", _ENDPOINT + "/recover", sending.recover_endpoint, "Send again what failed or was held.", _WRITE,
              body=Since, reply=about.RecoverOperation, problems=wrong,
              replies=((200, "What this call did; while `hasMore`, call again."),)),
        Route("POST", _ENDPOINT + "/backfill", sending.backfill_endpoint, "Send what happened and was never sent.",
              _WRITE, body=Since, reply=about.StartedOperation, problems=(*wrong, "quota_exceeded"),
              replies=((202, "The notifiers read it from the log; the stats of the endpoint tell how far."),)),
        Route("GET", _ENDPOINT + "/stats", sending.endpoint_stats, "Say how an endpoint does.", _READ,
              reply=about.WebhookEndpointStats, problems=_ONE),
    )  # fmt: skip


def delivery_routes(deliveries: DeliveryHandlers) -> tuple[Route, ...]:
    """Return the routes of deliveries."""
    one = "/v1/webhook-deliveries/{id}"
    wrong = ("delivery_not_found", "bad_parameter")
    return (
        Route("GET", "/v1/webhook-deliveries", deliveries.list_deliveries, "List webhook deliveries.", _READ,
              reply=about.WebhookDeliveryPage, problems=("bad_cursor", "bad_parameter"),
              parameters=(*_FILTERS, *PAGED)),
        Route("GET", one, deliveries.get_delivery, "Show a webhook delivery and what it sends.", _READ,
              reply=about.WebhookDeliveryDetails, problems=wrong),
        Route("GET", one + "/attempts", deliveries.list_attempts, "List the attempts of a delivery.", _READ,
              reply=about.WebhookAttemptPage, problems=wrong),
        Route("POST", one + "/redeliver", deliveries.redeliver, "Send a delivery again.", _WRITE,
              reply=about.WebhookDelivery,
              replies=((202, "It will be sent; the delivery that does so, made anew if it was forgotten."),),
              problems=(*wrong, "not_redeliverable", "endpoint_disabled", "quota_exceeded")),
        Route("GET", "/v1/jobs/{id}/deliveries", deliveries.list_deliveries_of_job,
              "List a job's webhook deliveries with their attempts.", _READ, reply=about.JobDeliveryPage,
              problems=("job_not_found", "bad_cursor", "bad_parameter"), parameters=PAGED),
    )  # fmt: skip


def admin_webhook_routes(admin: AdminWebhookHandlers) -> tuple[Route, ...]:
    """Return the operator's routes about webhooks."""
    of_tenant = Parameter("tenantId", "Only of this tenant.")
    deliveries = "/admin/v1/webhook-deliveries"
    return (
        Route("GET", "/admin/v1/webhook-endpoints", admin.admin_list_endpoints, "List endpoints of all tenants.",
              "admin", reply=about.AdminWebhookEndpointPage, problems=("bad_cursor", "bad_parameter"),
              parameters=(of_tenant, *PAGED)),
        Route("GET", deliveries, admin.admin_list_deliveries, "List deliveries of all tenants.", "admin",
              reply=about.AdminWebhookDeliveryPage, problems=("bad_cursor", "bad_parameter"),
              parameters=(of_tenant, *_FILTERS, *PAGED)),
        Route("POST", deliveries + "/redeliver", admin.redeliver_many, "Send many deliveries again.", "admin",
              body=DeliveriesRedeliver, reply=about.RedeliverOperation, problems=("bad_cursor",),
              replies=((200, "What this call did; while `hasMore`, call again with `nextCursor`."),)),
    )  # fmt: skip

"""The rows of the route table about webhooks."""

from contracts.webhook_api import EndpointCreate, EndpointPatch, SecretRotate
from services.ingest.handlers.endpoint_actions import EndpointActionHandlers
from services.ingest.handlers.endpoints import EndpointHandlers
from services.ingest.handlers.webhook_keys import WebhookKeysHandler
from services.ingest.routes import Parameter, Route
from services.ingest.views import webhook_schemas as about

_PAGED = (
    Parameter("limit", "Most items of one page.", kind="integer"),
    Parameter("cursor", "`nextCursor` of the page before, with the same filters."),
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
              reply=about.WebhookEndpointPage, problems=("bad_cursor", "bad_parameter"), parameters=_PAGED),
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

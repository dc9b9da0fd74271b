"""Webhook endpoints and deliveries as they are shown. Pure."""

from contracts.endpoints import Endpoint, Private
from contracts.times import instant
from contracts.webhook_headers import MASKED
from services.ingest.views.body_lines import JsonObject


def endpoint_view(endpoint: Endpoint, private: Private | None) -> JsonObject:
    """Return an endpoint as its tenant sees it; `private` None where what is kept is lost."""
    headers = endpoint.header_names if private is None else private.headers
    return _told(endpoint) | {
        "url": None if private is None else private.url,
        "headers": dict.fromkeys(headers, MASKED),
    }


def admin_endpoint_view(endpoint: Endpoint) -> JsonObject:
    """Return an endpoint as the operator sees it: its URL may hold a token that is none of his business."""
    return _told(endpoint) | {"tenantId": endpoint.tenant_id, "headers": dict.fromkeys(endpoint.header_names, MASKED)}


def _told(endpoint: Endpoint) -> JsonObject:
    return {
        "id": endpoint.id,
        "object": "webhook_endpoint",
        "origin": endpoint.origin,
        "events": list(endpoint.events),
        "format": endpoint.format,
        "ordering": endpoint.ordering,
        "rateLimit": endpoint.rate_per_s,
        "minIntervalMs": endpoint.min_interval_ms,
        "maxInFlight": endpoint.max_in_flight,
        "ed25519": endpoint.ed25519,
        "description": endpoint.description,
        "disabled": bool(endpoint.disabled),
        "disabledWhy": endpoint.disabled or None,
        "disabledAt": None if endpoint.disabled_ms is None else instant(endpoint.disabled_ms),
        "createdAt": instant(endpoint.created_ms),
    }

"""Webhook endpoints and deliveries as they are shown. Pure."""

import re
from collections.abc import Mapping

import orjson

from contracts.endpoints import Endpoint, Private
from contracts.times import instant
from contracts.webhook_headers import MASKED
from services.ingest.views.body_lines import JsonObject

Fields = Mapping[str, str]
ANONYMOUS = "anon"  # how the names of endpoints begin that are a job's own webhook
_ATTEMPT = re.compile(r"a:[0-9]{1,6}")
_NUMBER = re.compile(r"[0-9]{1,16}(\.[0-9]+)?")


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
        "disabledAt": instant(endpoint.disabled_ms),
        "createdAt": instant(endpoint.created_ms),
    }


def delivery_view(delivery_id: str, fields: Fields) -> JsonObject:
    """Return a delivery as a list shows it. `endpointId` is null for a job's own webhook."""
    name, state = fields.get("endpoint", ""), fields.get("state", "unreadable")
    return {
        "id": delivery_id,
        "object": "webhook_delivery",
        "endpointId": None if name.startswith(ANONYMOUS) else f"wh_{name}",
        "jobId": fields.get("job"),
        "eventType": fields.get("event"),
        "messageId": fields.get("message"),
        "state": state,
        "attempts": _whole(fields.get("try")) or 0,
        "lastOutcome": fields.get("outcome") or None,
        "nextAttemptAt": _instant(fields.get("due")) if state == "waiting" else None,
        "plannedAt": _instant(fields.get("planned")),
        "endedAt": _instant(fields.get("ended")),
    }


def attempts_view(fields: Fields) -> list[JsonObject]:
    """Return the attempts of a delivery, first to last; of what it answered only what is kept."""
    numbered = [(int(name[2:]), text) for name, text in fields.items() if _ATTEMPT.fullmatch(name)]
    return [_attempt(number, text) for number, text in sorted(numbered)]


def details_view(delivery_id: str, fields: Fields) -> JsonObject:
    """Return all that is kept of a delivery: the exact bytes it sends, and where to, for a job's own webhook."""
    listed = delivery_view(delivery_id, fields)
    return listed | {"url": fields.get("url") or None, "payload": fields.get("body") or None}


def _attempt(number: int, text: str) -> JsonObject:
    try:
        made = orjson.loads(text)
    except orjson.JSONDecodeError:
        made = {}
    made = made if isinstance(made, dict) else {}
    return {
        "attempt": number,
        "at": instant(made["atMs"]) if isinstance(made.get("atMs"), int) else None,
        "ms": made.get("ms"),
        "status": made.get("status"),
        "outcome": made.get("outcome"),
        "responseHeaders": made.get("headers"),
        "responseBody": made.get("body"),
    }


def _whole(text: str | None) -> int | None:
    return int(float(text)) if text and _NUMBER.fullmatch(text) else None


def _instant(text: str | None) -> str | None:
    return instant(_whole(text))

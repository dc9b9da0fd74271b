"""What a caller asks of an endpoint, as events and as what is kept. Pure."""

from contracts import events as ev
from contracts.endpoints import Endpoint, Private, SigningSecret, origin_of
from contracts.webhook_api import EndpointCreate, EndpointPatch

# attribute of an endpoint -> name in the API
_NAMES = {
    "events": "events",
    "format": "format",
    "ordering": "ordering",
    "rate_per_s": "rateLimit",
    "min_interval_ms": "minIntervalMs",
    "max_in_flight": "maxInFlight",
    "ed25519": "ed25519",
    "description": "description",
}
_MAY_BE_NULL = frozenset({"rateLimit", "maxInFlight"})


def created(wanted: EndpointCreate, endpoint_id: str, tenant_id: str, by: str) -> ev.EndpointCreated:
    """Return the event of a new endpoint."""
    return ev.EndpointCreated(
        tenant_id=tenant_id,
        endpoint_id=endpoint_id,
        origin=origin_of(wanted.url),
        events=tuple(dict.fromkeys(wanted.events)),
        format=wanted.format,
        ordering=wanted.ordering,
        header_names=tuple(wanted.headers),
        rate_per_s=wanted.rate_limit,
        min_interval_ms=wanted.min_interval_ms,
        max_in_flight=wanted.max_in_flight,
        ed25519=wanted.ed25519,
        description=wanted.description,
        by=by,
    )


def kept(wanted: EndpointCreate, secret: str) -> Private:
    """Return what is kept of a new endpoint."""
    return Private(wanted.url, wanted.headers, (SigningSecret(secret),))


def patched(
    endpoint: Endpoint, private: Private, wanted: EndpointPatch, by: str
) -> tuple[ev.EndpointUpdated, Private] | None:  # fmt: skip
    """Return the endpoint and what is kept of it as they are to be; None when they are so already."""
    given = {
        name: value
        for name, value in wanted.model_dump(exclude_unset=True, by_alias=True).items()
        if value is not None or name in _MAY_BE_NULL
    }
    if "events" in given:
        given["events"] = tuple(dict.fromkeys(given["events"]))
    url, headers = given.get("url", private.url), given.get("headers", private.headers)
    before = {attribute: getattr(endpoint, attribute) for attribute in _NAMES}
    after = {attribute: given.get(name, before[attribute]) for attribute, name in _NAMES.items()}
    differs = {name: after[attribute] != before[attribute] for attribute, name in _NAMES.items()}
    differs |= {"url": url != private.url, "headers": headers != private.headers}
    if not any(differs.values()):
        return None
    updated = ev.EndpointUpdated(
        tenant_id=endpoint.tenant_id,
        endpoint_id=endpoint.id,
        origin=origin_of(url) if url else endpoint.origin,  # what was kept of it is lost
        header_names=tuple(headers),
        changed=tuple(sorted(name for name, is_other in differs.items() if is_other)),
        by=by,
        **after,
    )
    return updated, Private(url, headers, private.secrets)

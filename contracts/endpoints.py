"""Webhook endpoints: what the log says of one, and what only its kept secret holds. Pure.

Promises: nothing of `Private` is in the log, in a repr or in an error text; the fold of an endpoint is total. Times
come in as arguments.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

import orjson

from contracts import events as ev
from contracts import ids
from contracts.errors import Corrupt
from contracts.positions import entry_ms

MOST_SECRETS = 4  # of one endpoint at a time: rotations may overlap, but not without end

EndpointEvent = (
    ev.EndpointCreated | ev.EndpointUpdated | ev.EndpointEnabled | ev.EndpointDisabled | ev.EndpointSecretRotated
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a tenant wants events sent. `disabled`: why it is, '' while it is not; `version`: its last event."""

    id: str
    tenant_id: str
    origin: str
    events: tuple[str, ...] = ev.DEFAULT_WEBHOOK_EVENTS
    format: ev.WebhookFormat = "standard"
    ordering: ev.Ordering = "best-effort"
    header_names: tuple[str, ...] = ()
    rate_per_s: float | None = None
    min_interval_ms: int = 1_000
    max_in_flight: int | None = None
    ed25519: bool = False
    disabled: Literal["", "manual", "gone", "failing"] = ""
    version: str = ""
    created_ms: int = 0
    disabled_ms: int | None = None
    description: str = ""

    @property
    def name(self) -> str:
        """What deliveries and keys call it: its id without `wh_`."""
        return self.id.removeprefix("wh_")

    def wants(self, event_type: str) -> bool:
        """Whether it subscribes to an event; what webhooks do not carry is wanted by nobody."""
        return event_type in SUBSCRIBABLE and any(matches(pattern, event_type) for pattern in self.events)


SUBSCRIBABLE = ev.WEBHOOK_EVENTS | ev.OPERATIONAL_EVENTS


def matches(pattern: str, event_type: str) -> bool:
    """Whether a pattern means an event: its exact name, `job.*` for all of that beginning, `*` for all of jobs.

    Those about other endpoints are of another shape, so they must be named: who asks for everything means jobs.

    >>> matches("job.*", "job.completed"), matches("job.*", "jobs.completed"), matches("*", "thumbnail.ready")
    (True, False, True)
    >>> matches("*", "webhook.endpoint_failing"), matches("webhook.*", "webhook.endpoint_failing")
    (False, True)
    """
    if pattern == "*":
        return event_type not in ev.OPERATIONAL_EVENTS
    return pattern == event_type or (pattern.endswith(".*") and event_type.startswith(pattern[:-1]))


def is_pattern(text: str) -> bool:
    """Whether a pattern means any event at all: one that means none would be silence that nobody can explain."""
    return any(matches(text, event_type) for event_type in SUBSCRIBABLE)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL that was judged: what may be told of it.

    >>> origin_of("https://App.example:8443/hook?token=x")
    'https://app.example:8443'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}".lower()


def anonymous_endpoint(tenant_id: str, url: str) -> str:
    """Name the anonymous endpoint behind a URL: one per tenant and origin.

    Not one per URL: a path with a job's id in it would make an endpoint of its own for each job, and a slow receiver
    would then be called without any limit.
    """
    origin = urlsplit(url)
    digest = hashlib.sha256(f"{tenant_id}\n{origin.scheme}://{origin.netloc}".lower().encode()).digest()
    return "anon" + ids.encode_base32(int.from_bytes(digest[:8]), 12)


def as_told(known: Endpoint | None, event: EndpointEvent, position: str) -> Endpoint | None:
    """Fold one event of an endpoint; None for an event of one that is gone."""
    at_ms = entry_ms(position)
    if isinstance(event, ev.EndpointCreated | ev.EndpointUpdated):
        return _described(known or Endpoint(event.endpoint_id, event.tenant_id, "", created_ms=at_ms), event, position)
    if known is None:
        return None
    match event:
        case ev.EndpointEnabled():
            return replace(known, disabled="", disabled_ms=None, version=position)
        case ev.EndpointDisabled(why=why):
            return replace(known, disabled=why, disabled_ms=at_ms, version=position)
        case _:
            return replace(known, version=position)


def _described(known: Endpoint, event: ev.EndpointCreated | ev.EndpointUpdated, position: str) -> Endpoint:
    return replace(
        known,
        origin=event.origin,
        events=event.events,
        format=event.format,
        ordering=event.ordering,
        header_names=event.header_names,
        rate_per_s=event.rate_per_s,
        min_interval_ms=event.min_interval_ms,
        max_in_flight=event.max_in_flight,
        ed25519=event.ed25519,
        description=event.description,
        version=position,
    )


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A `whsec_` secret; one that was replaced signs until then."""

    secret: str = field(repr=False)
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Private:
    """What the kept secret of an endpoint holds. A tenant's own (`webhook:<tenant>`) holds secrets only."""

    url: str = field(repr=False, default="")
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)
    secrets: tuple[SigningSecret, ...] = field(repr=False, default=())

    def signing(self, now_ms: int) -> tuple[str, ...]:
        """Return the secrets that sign at this moment, the newest first."""
        return tuple(known.secret for known in self.secrets if known.until_ms is None or now_ms < known.until_ms)

    def rotated(self, secret: str, now_ms: int, old_until_ms: int) -> "Private":
        """Return it with a new secret; those before sign until then at the latest, and are gone afterwards."""
        old = [
            replace(known, until_ms=old_until_ms if known.until_ms is None else min(known.until_ms, old_until_ms))
            for known in self.secrets
        ]
        still = [known for known in old if known.until_ms is not None and known.until_ms > now_ms]
        return replace(self, secrets=(SigningSecret(secret), *still[: MOST_SECRETS - 1]))

    def to_json(self) -> str:
        """Return what is kept."""
        secrets = [{"secret": known.secret, "untilMs": known.until_ms} for known in self.secrets]
        return orjson.dumps({"url": self.url, "headers": dict(self.headers), "secrets": secrets}).decode()


def endpoint_secret(endpoint_id: str) -> str:
    """Name the kept secret of an endpoint."""
    return f"endpoint:{endpoint_id}"


def tenant_secret(tenant_id: str) -> str:
    """Name the kept secret that signs the webhooks of a tenant's jobs."""
    return f"webhook:{tenant_id}"


def read_private(name: str, text: str) -> Private:
    """Read what is kept under a name; a text that is no object is one secret alone. Raises Corrupt."""
    if not text.startswith("{"):
        return Private(secrets=(SigningSecret(text),))
    try:
        kept = orjson.loads(text)
        secrets = tuple(SigningSecret(known["secret"], known["untilMs"]) for known in kept["secrets"])
        return Private(kept["url"], kept["headers"], secrets)
    except (ValueError, KeyError, TypeError):
        raise Corrupt(name, "the kept secret cannot be read") from None

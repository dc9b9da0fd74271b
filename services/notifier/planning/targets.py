"""Who is told of an event of a job, and how: its own webhook, and the endpoints of its tenant. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.endpoints import Endpoint, anonymous_endpoint
from contracts.events import DEFAULT_WEBHOOK_EVENTS, WebhookFormat
from services.notifier.planning.subscriptions import wants

ANONYMOUS_INTERVAL_MS = 1_000  # of a job's own webhook
PROGRESS = "job.progress"
LAST = frozenset({"job.completed", "job.failed", "job.cancelled", "job.expired"})


@dataclass(frozen=True, slots=True)
class Target:
    """Who wants an event. `endpoint`: its name; `url`: of an anonymous one only.

    `interval_ms`: between two progress events of a job, of which the newest wins; 0 sends each.
    `hears_progress`: some may wait when the job ends.
    """

    endpoint: str
    url: str = ""
    format: WebhookFormat = "standard"
    strict: bool = False
    interval_ms: int = ANONYMOUS_INTERVAL_MS
    hears_progress: bool = False


def own_target(event_type: str, tenant_id: str, spec: Mapping[str, object], events: object) -> Target | None:
    """Return the job's own webhook if it wants the event; `events` is what it subscribed to at that moment."""
    url, chosen = spec.get("webhookUrl"), events or DEFAULT_WEBHOOK_EVENTS
    if not isinstance(url, str) or not isinstance(chosen, list | tuple) or event_type not in chosen:
        return None
    hears_progress = PROGRESS in chosen or events != spec.get("webhookEvents")
    return Target(anonymous_endpoint(tenant_id, url), url, hears_progress=hears_progress)


def endpoint_targets(event_type: str, at_ms: int, endpoints: Sequence[Endpoint]) -> list[Target]:
    """Return those of a tenant's endpoints that want an event of this time."""
    return [target_of(endpoint) for endpoint in endpoints if wants(endpoint, event_type, at_ms)]


def target_of(endpoint: Endpoint) -> Target:
    """Return how a configured endpoint is told."""
    strict = endpoint.ordering == "strict"
    hears_progress = endpoint.wants(PROGRESS)
    return Target(endpoint.name, "", endpoint.format, strict, endpoint.min_interval_ms, hears_progress)

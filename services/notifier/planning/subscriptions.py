"""The endpoints of all tenants, indexed for planning. Pure.

Promises: an event that no endpoint of any tenant can want is known by its type and time alone.
"""

from collections.abc import Iterable

from contracts.endpoints import SUBSCRIBABLE, Endpoint, matches

NEVER_MS, ALWAYS_MS = -1, 1 << 62


class Subscriptions:
    """Made once for each configuration, asked for each event."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._of_tenant: dict[str, list[Endpoint]] = {}
        until: dict[str, int] = {}  # few patterns, whatever the number of endpoints
        for endpoint in endpoints:
            self._of_tenant.setdefault(endpoint.tenant_id, []).append(endpoint)
            for pattern in endpoint.events:
                until[pattern] = max(until.get(pattern, NEVER_MS), _until(endpoint))
        self._until = {
            event_type: max((ms for pattern, ms in until.items() if matches(pattern, event_type)), default=NEVER_MS)
            for event_type in (SUBSCRIBABLE if until else ())
        }

    def may_want(self, event_type: str, at_ms: int) -> bool:
        """Whether some endpoint of some tenant could want it."""
        return self._until.get(event_type, NEVER_MS) >= at_ms

    def of_tenant(self, tenant_id: str) -> tuple[Endpoint, ...]:
        """Return a tenant's endpoints, those that are off among them: they were on once."""
        return tuple(self._of_tenant.get(tenant_id, ()))


def wants(endpoint: Endpoint, event_type: str, at_ms: int) -> bool:
    """Whether an endpoint subscribed to an event when it happened.

    What happened before it was disabled is still its own, however late it is planned: it is held with the rest. What
    happened while it was off is not told apart from the rest once it is on again.
    """
    return endpoint.created_ms <= at_ms <= _until(endpoint) and endpoint.wants(event_type)


def _until(endpoint: Endpoint) -> int:
    if not endpoint.disabled:
        return ALWAYS_MS
    return NEVER_MS if endpoint.disabled_ms is None else endpoint.disabled_ms

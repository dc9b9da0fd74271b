"""Tenants, keys, pools and webhook endpoints as folded from the configuration log. Pure."""

from dataclasses import dataclass, field, replace

from contracts import events as ev
from contracts.endpoints import Endpoint, EndpointEvent, as_told
from contracts.positions import START
from contracts.wire import Entry


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays. Weight inside its tier's weight; None in a limit means not set."""

    id: str
    tier: ev.Tier = "standard"
    weight: float = 1.0
    limits: ev.TenantLimits = ev.TenantLimits()
    created_ms: int = 0
    paused: bool = False
    webhook_hosts: tuple[str, ...] | None = None  # webhooks go to these only; None: to any host
    webhook_version: str = ""  # position at which its own webhook secret was last replaced


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as stored: only the SHA-256 of the whole key."""

    id: str
    tenant_id: str
    sha256: str
    scopes: tuple[str, ...]
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything the log of {_sys} says up to `position`."""

    position: str = START
    tenants: dict[str, Tenant] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)  # name -> code
    policies: dict[str, ev.PolicyFacts] = field(default_factory=dict)  # pool -> knobs that differ from the settings
    paused_pools: frozenset[str] = frozenset()
    paused_models: frozenset[str] = frozenset()  # name or name@version, in every pool
    retention: dict[tuple[str, str], ev.RetentionFacts] = field(default_factory=dict)  # (pool, tenant), "" all
    resources: dict[str, ev.ResourceRule] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)

    def pool_of_code(self, code: str) -> str | None:
        """Return the pool whose ids carry this code."""
        return next((name for name, known in self.pools.items() if known == code), None)

    def endpoint_by_name(self, name: str) -> Endpoint | None:
        """Return the endpoint that deliveries call by this name; None for an anonymous one, or one that is gone."""
        return self.endpoints.get(f"wh_{name}")

    def endpoints_of(self, tenant_id: str) -> tuple[Endpoint, ...]:
        """Return a tenant's endpoints, oldest first. Looks at all there are: index them to ask for many tenants."""
        return tuple(endpoint for endpoint in self.endpoints.values() if endpoint.tenant_id == tenant_id)

    def is_model_paused(self, reference: str) -> bool:
        """Whether `name@version` is paused, by itself or with all versions of its name."""
        return reference in self.paused_models or reference.partition("@")[0] in self.paused_models


def configure(state: Configuration, entry: Entry) -> Configuration:
    """Fold one entry of the configuration log; unknown types are skipped."""
    event, at_ms = entry.event(), int(entry.position.partition("-")[0])
    moved = replace(state, position=entry.position)
    match event:
        case ev.TenantCreated() | ev.TenantUpdated():
            known = state.tenants.get(event.tenant_id, Tenant(event.tenant_id, created_ms=at_ms))
            return _with_tenant(moved, _as_it_is(known, event))
        case ev.TenantPaused() | ev.TenantResumed():
            known = state.tenants.get(event.tenant_id, Tenant(event.tenant_id, created_ms=at_ms))
            return _with_tenant(moved, replace(known, paused=isinstance(event, ev.TenantPaused)))
        case ev.TenantWebhookSecretRotated():
            known = state.tenants.get(event.tenant_id, Tenant(event.tenant_id, created_ms=at_ms))
            return _with_tenant(moved, replace(known, webhook_version=entry.position))
        case ev.KeyCreated():
            key = ApiKey(event.key_id, event.tenant_id, event.sha256, event.scopes, at_ms)
            return replace(moved, keys=state.keys | {key.id: key})
        case ev.KeyRevoked():
            return replace(moved, keys={name: key for name, key in state.keys.items() if name != event.key_id})
        case ev.PoolCreated():
            return replace(moved, pools=state.pools | {event.pool: event.code})
        case ev.PolicyChanged():
            return replace(moved, policies=state.policies | {event.pool: event.policy})
        case ev.RetentionChanged():
            scope = (event.pool or "", event.tenant_id or "")
            return replace(moved, retention=state.retention | {scope: event.retention})
        case ev.PoolPaused():
            return replace(moved, paused_pools=state.paused_pools | {event.pool})
        case ev.PoolResumed():
            return replace(moved, paused_pools=state.paused_pools - {event.pool})
        case ev.ModelPaused():
            return replace(moved, paused_models=state.paused_models | {event.model})
        case ev.ModelResumed():
            return replace(moved, paused_models=state.paused_models - {event.model})
        case ev.ResourceDefined():
            rule = ev.ResourceRule(rate=event.rate, window_ms=event.window_ms)
            return replace(moved, resources=state.resources | {event.resource: rule})
        case ev.EndpointCreated() | ev.EndpointUpdated() | ev.EndpointEnabled() | ev.EndpointDisabled():
            return _with_endpoint(moved, event, entry.position)
        case ev.EndpointSecretRotated():
            return _with_endpoint(moved, event, entry.position)
        case ev.EndpointDeleted():
            left = {name: endpoint for name, endpoint in state.endpoints.items() if name != event.endpoint_id}
            return replace(moved, endpoints=left)
        case _:
            return moved


def _as_it_is(known: Tenant, event: ev.TenantCreated | ev.TenantUpdated) -> Tenant:
    hosts = event.webhook_hosts
    return replace(known, tier=event.tier, weight=event.weight, limits=event.limits, webhook_hosts=hosts)


def _with_endpoint(state: Configuration, event: EndpointEvent, position: str) -> Configuration:
    endpoint = as_told(state.endpoints.get(event.endpoint_id), event, position)
    return state if endpoint is None else replace(state, endpoints=state.endpoints | {endpoint.id: endpoint})


def _with_tenant(state: Configuration, tenant: Tenant) -> Configuration:
    return replace(state, tenants=state.tenants | {tenant.id: tenant})

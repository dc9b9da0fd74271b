"""Tenants, keys and pools as folded from the configuration log. Pure."""

from dataclasses import dataclass, field, replace

from contracts import events as ev
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
    resources: dict[str, ev.ResourceRule] = field(default_factory=dict)

    def pool_of_code(self, code: str) -> str | None:
        """Return the pool whose ids carry this code."""
        return next((name for name, known in self.pools.items() if known == code), None)

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
            return _with_tenant(moved, replace(known, tier=event.tier, weight=event.weight, limits=event.limits))
        case ev.TenantPaused() | ev.TenantResumed():
            known = state.tenants.get(event.tenant_id, Tenant(event.tenant_id, created_ms=at_ms))
            return _with_tenant(moved, replace(known, paused=isinstance(event, ev.TenantPaused)))
        case ev.KeyCreated():
            key = ApiKey(event.key_id, event.tenant_id, event.sha256, event.scopes, at_ms)
            return replace(moved, keys=state.keys | {key.id: key})
        case ev.KeyRevoked():
            return replace(moved, keys={name: key for name, key in state.keys.items() if name != event.key_id})
        case ev.PoolCreated():
            return replace(moved, pools=state.pools | {event.pool: event.code})
        case ev.PolicyChanged():
            return replace(moved, policies=state.policies | {event.pool: event.policy})
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
        case _:
            return moved


def _with_tenant(state: Configuration, tenant: Tenant) -> Configuration:
    return replace(state, tenants=state.tenants | {tenant.id: tenant})

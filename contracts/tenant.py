"""Tenants, keys and pools as folded from the configuration log. Pure."""

from dataclasses import dataclass, field, replace
from typing import Literal

from contracts import events as ev
from contracts.positions import START
from contracts.wire import Entry

Tier = Literal["free", "standard", "enterprise"]
TIER_WEIGHTS: dict[str, int] = {"enterprise": 8, "standard": 3, "free": 1}


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays. Weight inside its tier's weight; None in a limit means not set."""

    id: str
    tier: Tier = "standard"
    weight: float = 1.0
    limits: ev.TenantLimits = ev.TenantLimits()
    created_ms: int = 0


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

    def pool_of_code(self, code: str) -> str | None:
        """Return the pool whose ids carry this code."""
        return next((name for name, known in self.pools.items() if known == code), None)


def configure(state: Configuration, entry: Entry) -> Configuration:
    """Fold one entry of the configuration log; unknown types are skipped."""
    event, at_ms = entry.event(), int(entry.position.partition("-")[0])
    moved = replace(state, position=entry.position)
    match event:
        case ev.TenantCreated() | ev.TenantUpdated():
            created = state.tenants[event.tenant_id].created_ms if event.tenant_id in state.tenants else at_ms
            tenant = Tenant(event.tenant_id, event.tier, event.weight, event.limits, created)
            return replace(moved, tenants=state.tenants | {tenant.id: tenant})
        case ev.KeyCreated():
            key = ApiKey(event.key_id, event.tenant_id, event.sha256, event.scopes, at_ms)
            return replace(moved, keys=state.keys | {key.id: key})
        case ev.KeyRevoked():
            return replace(moved, keys={name: key for name, key in state.keys.items() if name != event.key_id})
        case ev.PoolCreated():
            return replace(moved, pools=state.pools | {event.pool: event.code})
        case _:
            return moved

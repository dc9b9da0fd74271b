"""Configuration is events too: tenants, keys, pools."""

from typing import ClassVar, Literal

from contracts.events.root import Event, Part


class TenantLimits(Part):
    """Limits of a tenant; None means not set. Counted within a pool."""

    queued_jobs: int | None = None
    queued_bytes: int | None = None
    concurrency: int | None = None
    user_concurrency: int | None = None
    submits_per_minute: int | None = None
    gpu_seconds_per_day: int | None = None


class TenantCreated(Event):
    """admin: a tenant exists."""

    TYPE: ClassVar[str] = "tenant.created"
    tenant_id: str
    tier: Literal["free", "standard", "enterprise"] = "standard"
    weight: float = 1.0
    limits: TenantLimits = TenantLimits()
    reason: str = ""
    by: str = ""


class TenantUpdated(Event):
    """admin: the tenant as it is from now on."""

    TYPE: ClassVar[str] = "tenant.updated"
    tenant_id: str
    tier: Literal["free", "standard", "enterprise"] = "standard"
    weight: float = 1.0
    limits: TenantLimits = TenantLimits()
    reason: str = ""
    by: str = ""


class KeyCreated(Event):
    """admin: an API key; only its SHA-256 is stored."""

    TYPE: ClassVar[str] = "key.created"
    tenant_id: str
    key_id: str
    sha256: str
    scopes: tuple[str, ...]
    reason: str = ""
    by: str = ""


class KeyRevoked(Event):
    """admin: the key stops working."""

    TYPE: ClassVar[str] = "key.revoked"
    tenant_id: str
    key_id: str
    reason: str = ""
    by: str = ""


class PoolCreated(Event):
    """configuration: a pool and the code its ids carry, given once and never reused."""

    TYPE: ClassVar[str] = "pool.created"
    pool: str
    code: str

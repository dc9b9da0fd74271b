"""Configuration is events too: tenants, keys, pools."""

from typing import ClassVar, Literal

from contracts.events.root import Acted, Event, Part

Tier = Literal["free", "standard", "enterprise"]


class TenantLimits(Part):
    """Limits of a tenant; None means not set. Counted within a pool."""

    queued_jobs: int | None = None
    queued_bytes: int | None = None
    concurrency: int | None = None
    user_concurrency: int | None = None
    submits_per_minute: int | None = None
    gpu_seconds_per_day: int | None = None


class _Decided(Acted):
    """Somebody decided it. The first among the bases, so that its fields are the last on the wire."""

    reason: str = ""
    by: str = ""


class _OfTenant(Event):
    tenant_id: str


class _OfPool(Event):
    pool: str


class _OfModel(Event):
    model: str


class _TenantAsItIs(_OfTenant):
    tier: Tier = "standard"
    weight: float = 1.0
    limits: TenantLimits = TenantLimits()
    webhook_hosts: tuple[str, ...] | None = None  # webhooks go to these only; None: to any host


class TenantCreated(_Decided, _TenantAsItIs):
    """admin: a tenant exists."""

    TYPE: ClassVar[str] = "tenant.created"


class TenantUpdated(_Decided, _TenantAsItIs):
    """admin: the tenant as it is from now on."""

    TYPE: ClassVar[str] = "tenant.updated"


class KeyCreated(Acted):
    """admin: an API key; only its SHA-256 is stored."""

    TYPE: ClassVar[str] = "key.created"
    tenant_id: str
    key_id: str
    sha256: str
    scopes: tuple[str, ...]
    reason: str = ""
    by: str = ""


class KeyRevoked(Acted):
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


class PolicyFacts(Part):
    """The knobs of a pool's policy; None leaves one as it is. Rules and defaults: `contracts.policy`."""

    tier_weights: dict[Tier, float] | None = None
    tier_floors: dict[Tier, float] | None = None
    lead_s: float | None = None
    bypass_s: float | None = None
    hold: bool | None = None
    deck_lead_s: float | None = None


class PolicyChanged(Acted):
    """admin: these knobs of the pool's policy differ from the settings from now on."""

    TYPE: ClassVar[str] = "policy.changed"
    pool: str
    policy: PolicyFacts
    previous: PolicyFacts = PolicyFacts()
    reason: str = ""
    by: str = ""


class RetentionFacts(Part):
    """How long things are kept; None: as the next wider scope has it, in the end the settings."""

    completed_s: float | None = None
    failed_s: float | None = None
    live_s: float | None = None


class RetentionChanged(Acted):
    """admin: what is kept for how long from now on, also of what has ended; of a pool, a tenant, or all."""

    TYPE: ClassVar[str] = "retention.changed"
    pool: str | None = None
    tenant_id: str | None = None
    retention: RetentionFacts
    previous: RetentionFacts = RetentionFacts()
    reason: str = ""
    by: str = ""


class PoolPaused(_Decided, _OfPool):
    """admin: nothing of the pool is offered any more; what runs goes on."""

    TYPE: ClassVar[str] = "pool.paused"


class PoolResumed(_Decided, _OfPool):
    """admin: the pool is served again."""

    TYPE: ClassVar[str] = "pool.resumed"


class TenantPaused(_Decided, _OfTenant):
    """admin: nothing of the tenant is offered any more; what runs goes on."""

    TYPE: ClassVar[str] = "tenant.paused"


class TenantResumed(_Decided, _OfTenant):
    """admin: the tenant is served again."""

    TYPE: ClassVar[str] = "tenant.resumed"


class ModelPaused(_Decided, _OfModel):
    """admin: no job of the model is offered any more, in any pool; what runs goes on."""

    TYPE: ClassVar[str] = "model.paused"


class ModelResumed(_Decided, _OfModel):
    """admin: the model is served again."""

    TYPE: ClassVar[str] = "model.resumed"


class ResourceDefined(Event):
    """ingest: an external rate limit as pipelines.toml states it: `rate` tokens in any window."""

    TYPE: ClassVar[str] = "resource.defined"
    resource: str
    rate: int
    window_ms: int

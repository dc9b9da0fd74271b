"""The shapes of answers about the service itself: models, limits, tenants, keys, workers, health."""

from contracts.events import Tier
from services.ingest.views.schemas import Anything, Page, Shape


class Model(Shape):
    """A model that may be asked for; `inputs` is the JSON Schema of {"prompt": ..., **input}."""

    name: str
    version: str
    pools: list[str]
    vram_mib: int | None
    max_batch: int
    timeout_seconds: float
    silence_seconds: float | None
    resources: dict[str, int]
    paused: bool
    inputs: dict[str, Anything]


class PausedModel(Shape):
    """Whether a model is offered; `pausedAs` are the names it is paused under, of which one may be the name alone."""

    name: str
    object: str
    paused: bool
    paused_as: list[str]


class ModelPage(Page):
    """All models."""

    data: list[Model]


class LimitValues(Shape):
    """What the tenant may have; null: no limit."""

    queued_jobs: int
    queued_bytes: int
    body_bytes: int
    concurrency: int | None
    user_concurrency: int | None
    submits_per_minute: int | None
    gpu_seconds_per_day: int | None


class PoolUse(Shape):
    """What is held in one pool."""

    queued_jobs: int
    queued_bytes: int


class LimitUse(PoolUse):
    """What the tenant holds in one pool, and has used of the day; null where nobody says at the moment."""

    running: int | None
    gpu_seconds: float | None


class SubmitsLeft(Shape):
    """How many jobs may be submitted now, and when a whole minute's worth may again."""

    left: int
    refill_seconds: int


class Limits(Shape):
    """Limits and their use, by pool; `submits` is null without such a limit."""

    tenant_id: str
    tier: Tier
    weight: float
    paused: bool
    limits: LimitValues
    use: dict[str, LimitUse]
    submits: SubmitsLeft | None
    budget_resets_at: str


class TenantLimitsShown(Shape):
    """The tenant's own limits; null: the installation's default holds, or no limit where there is none."""

    queued_jobs: int | None
    queued_bytes: int | None
    concurrency: int | None
    user_concurrency: int | None
    submits_per_minute: int | None
    gpu_seconds_per_day: int | None


class Tenant(Shape):
    """A tenant. `webhookSecret` is there once, in the answer that created it."""

    id: str
    object: str
    tier: Tier
    weight: float
    paused: bool
    limits: TenantLimitsShown
    webhook_hosts: list[str] | None
    created_at: str
    webhook_secret: str | None = None


class TenantPage(Page):
    """Tenants by id."""

    data: list[Tenant]


class Pool(Shape):
    """A pool; `workers` are those that take offers."""

    name: str
    object: str
    paused: bool
    models: list[str]
    workers: int
    use: PoolUse


class PoolPage(Page):
    """Pools by name."""

    data: list[Pool]


class Policy(Shape):
    """The scheduling policy of a pool as it is in force; `changed` are the knobs that differ from the settings."""

    pool: str
    object: str
    tier_weights: dict[Tier, float]
    tier_floors: dict[Tier, float]
    lead_seconds: float
    bypass_seconds: float
    hold: bool
    deck_lead_seconds: float
    changed: list[str]


class Key(Shape):
    """An API key. `key` is there once, in the answer that created it."""

    id: str
    object: str
    tenant_id: str
    scopes: list[str]
    created_at: str
    key: str | None = None


class KeyPage(Page):
    """Keys of a tenant by id."""

    data: list[Key]


class Worker(Shape):
    """A supervisor with its devices."""

    id: str
    object: str
    pool: str
    host: str | None
    pid: int | None
    state: str | None
    last_beat_at: str | None
    beats: int
    version: str | None
    held: list[dict[str, Anything]]
    devices: list[dict[str, Anything]]


class WorkerPage(Page):
    """All workers."""

    data: list[Worker]


class Autoscale(Shape):
    """What waits in a pool: `backlogSeconds` is device time; `oldestSeconds` how long the oldest has waited."""

    pool: str
    desired_replicas: int
    backlog_seconds: float
    backlog_jobs: int
    oldest_seconds: float


class Health(Shape):
    """The process answers."""

    status: str


class ReadyVerdict(Shape):
    """The cached verdict; `reason` is empty when ready."""

    status: str
    reason: str
    age_seconds: float
    checks: dict[str, Anything]


class UsageLine(Shape):
    """What was used: counts, milliseconds, bytes. Of day, tenantId, model and pool it has those it is grouped by."""

    day: str | None = None
    tenant_id: str | None = None
    model: str | None = None
    pool: str | None = None
    jobs_created: int
    jobs_completed: int
    jobs_failed: int
    jobs_cancelled: int
    jobs_expired: int
    gpu_ms: int
    load_ms: int
    artifact_bytes: int
    deliveries: int
    delivery_attempts: int
    final: bool


class UsagePage(Page):
    """Exact as of `asOf`; of what came before `since` nothing is known, null: all is."""

    data: list[UsageLine]
    as_of: str
    since: str | None

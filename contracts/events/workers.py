"""Workers and the scheduler itself."""

from typing import ClassVar, Literal, TypeAlias

from contracts.events.configuration import PolicyFacts, Tier
from contracts.events.root import Acted, Event, Part, SlotInfo

WorkerCommand: TypeAlias = Literal["drain", "undrain", "load_model", "evict_model"]


class WorkerRegistered(Event):
    """worker: a supervisor is up; its id is new at every boot."""

    TYPE: ClassVar[str] = "worker.registered"
    worker_id: str
    host: str
    pid: int
    slots: tuple[SlotInfo, ...]
    models: tuple[str, ...] = ()
    version: str = ""


class WorkerChanged(Event):
    """worker: what a choice may use has changed."""

    TYPE: ClassVar[str] = "worker.changed"
    worker_id: str
    slots: tuple[SlotInfo, ...]


class WorkerDeckFreed(Event):
    """scheduler: the offer that lay there came to nothing: its job started on another deck."""

    TYPE: ClassVar[str] = "worker.deck_freed"
    worker_id: str
    slot: int
    offer_id: str
    job_id: str


class WorkerCommanded(Acted):
    """ingest: an operator asked something of the worker, which does it when it reads of it."""

    TYPE: ClassVar[str] = "worker.commanded"
    worker_id: str
    command: WorkerCommand
    model: str | None = None
    device: str | None = None  # None: the worker chooses, or all
    deadline_ms: int | None = None  # of a drain: then what runs is given back
    reason: str = ""
    by: str = ""


class WorkerCommandFailed(Event):
    """worker: what an operator asked for cannot be done."""

    TYPE: ClassVar[str] = "worker.command_failed"
    worker_id: str
    command: WorkerCommand
    model: str | None = None
    message: str = ""


class WorkerDraining(Event):
    """worker: takes nothing new."""

    TYPE: ClassVar[str] = "worker.draining"
    worker_id: str
    reason: str = ""


class WorkerDrained(Event):
    """worker: holds nothing and is gone."""

    TYPE: ClassVar[str] = "worker.drained"
    worker_id: str


class WorkerLost(Event):
    """scheduler: its heartbeat stood still for a whole lease; everything it held is given to others."""

    TYPE: ClassVar[str] = "worker.lost"
    worker_id: str
    silent_ms: int


class TenantRule(Part):
    """What a choice uses of one tenant; counted within the pool. None: no limit."""

    tier: Tier = "standard"
    concurrency: int | None = None
    user_concurrency: int | None = None
    gpu_seconds_per_day: int | None = None
    paused: bool = False


class ResourceRule(Part):
    """An external rate limit: `rate` tokens in any window."""

    rate: int
    window_ms: int


ProfileSource = Literal["audit", "provisional", "drift", "oom"]


class ModelProfiled(Event):
    """worker or audit: jobs of this model and bucket that wait, or are created from now on, reserve this much at least.

    An audit takes back what was said before of the model: its file has all that is known.
    """

    TYPE: ClassVar[str] = "model.profiled"
    model: str  # name@version
    bucket: str | None = None
    bytes: int  # with headroom
    source: ProfileSource
    device: str = ""  # kind/name, as in the profile
    peak_bytes: int | None = None  # as it was measured


class PolicyApplied(Event):
    """scheduler: the leader copies the configuration it will use from now on into its own log.

    None, and a tenant or resource that is not named, leave what was copied before.
    """

    TYPE: ClassVar[str] = "policy.applied"
    position: str  # in the configuration log
    weights: dict[str, float] = {}  # tier weight x tenant weight
    tenants: dict[str, TenantRule] | None = None
    policy: PolicyFacts | None = None  # complete: every knob
    paused: bool | None = None  # the pool
    paused_models: tuple[str, ...] | None = None
    resources: dict[str, ResourceRule] | None = None


class ResourceGranted(Event):
    """scheduler: {_sys} gave this pool so many starts that draw on the resource."""

    TYPE: ClassVar[str] = "resource.granted"
    resource: str
    n: int
    until_ms: int | None = None  # of an old entry: they hold until they are used


class ResourceExpired(Event):
    """scheduler: so many tokens of the resource were not used in time, and nothing may draw on them any more."""

    TYPE: ClassVar[str] = "resource.expired"
    resource: str
    n: int


class ResourcePaused(Event):
    """scheduler: the provider said "not now"; no start draws on the resource before then."""

    TYPE: ClassVar[str] = "resource.paused"
    resource: str
    until_ms: int


class TenantBudgetExhausted(Event):
    """scheduler: the tenant has used its device time of the day in this pool."""

    TYPE: ClassVar[str] = "tenant.budget_exhausted"
    tenant_id: str
    day: str  # UTC, 2026-11-30
    used_gpu_seconds: int
    limit_gpu_seconds: int


class BudgetsRenewed(Event):
    """scheduler: a new day has begun; every tenant's budget is whole again."""

    TYPE: ClassVar[str] = "budgets.renewed"
    day: str  # UTC, 2026-11-30


class SchedulerMismatch(Event):
    """scheduler: a decision was refused although the state is folded; the job leaves choice until repaired.

    Where the worker's guard refused, that slot leaves choice, and the job goes elsewhere.
    """

    TYPE: ClassVar[str] = "scheduler.mismatch"
    job_id: str
    reason: str
    worker_id: str | None = None
    slot: int | None = None

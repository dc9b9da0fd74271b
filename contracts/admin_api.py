"""The bodies of the administration API: what an operator may send."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from contracts.api import JobsErase
from contracts.body import Body, Instant, Reason
from contracts.events import Tier
from contracts.policy import PolicySeconds, Share, Weight
from contracts.webhook_hosts import is_host_pattern

Scope = Literal[
    "jobs:write",
    "jobs:read",
    "events:read",
    "models:read",
    "webhooks:read",
    "webhooks:write",
    "audit:read",
    "admin",
]


class TenantLimits(Body):
    """What one tenant may have; null: the default of the installation, or no limit where there is none."""

    queued_jobs: int | None = Field(default=None, ge=0, le=10_000_000)
    queued_bytes: int | None = Field(default=None, ge=0, le=1 << 40)
    concurrency: int | None = Field(default=None, ge=1, le=1_000_000)
    user_concurrency: int | None = Field(default=None, ge=1, le=1_000_000)
    submits_per_minute: int | None = Field(default=None, ge=1, le=10_000_000)
    gpu_seconds_per_day: int | None = Field(default=None, ge=1, le=1_000_000_000)


# Beside the tier's own weight, which has a wider range.
TenantWeight = Annotated[float, Field(ge=0.001, le=1_000, allow_inf_nan=False)]


def _fault(sentence: str, pointer: str) -> PydanticCustomError:
    return PydanticCustomError("contradiction", "{sentence}", {"sentence": sentence, "pointer": pointer})


def _host_pattern(text: str) -> str:
    if not is_host_pattern(text):
        raise PydanticCustomError("value_error", "must be a host in lower case, or *. before one")
    return text


# Where a tenant's webhooks may go; null: to any host, an empty list: to none.
WebhookHosts = Annotated[tuple[Annotated[str, AfterValidator(_host_pattern)], ...], Field(strict=False, max_length=256)]


class TenantCreate(Body):
    """Body of `POST /admin/v1/tenants`."""

    id: Annotated[str, Field(pattern=r"^t_[a-z0-9][a-z0-9_-]{0,47}$")]
    tier: Tier = "standard"
    weight: TenantWeight = 1.0
    limits: TenantLimits = TenantLimits()
    webhook_hosts: WebhookHosts | None = None
    reason: Reason = ""


class TenantPatch(Body):
    """Body of `PATCH /admin/v1/tenants/{t}`: what is left out stays as it is; `webhookHosts` null means any host."""

    tier: Tier | None = None
    weight: TenantWeight | None = None
    limits: TenantLimits | None = None
    webhook_hosts: WebhookHosts | None = None
    reason: Reason = ""


class Because(Body):
    """Body of a pause or resume: why."""

    reason: Reason = ""


KeptSeconds = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]


class RetentionPatch(Body):
    """Body of `PATCH /admin/v1/retention`: what is left out stays, null goes back to the next wider scope."""

    completed_seconds: KeptSeconds | None = None
    failed_seconds: KeptSeconds | None = None
    live_seconds: KeptSeconds | None = None
    reason: Reason = ""


class DeadLettersFilter(Body):
    """Which dead letters; {} means all. Times are of the failure, from `since` to before `until`."""

    pool: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    tenant_id: Annotated[str, Field(pattern=r"^t_[a-z0-9][a-z0-9_-]{0,47}$")] | None = None
    model: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    code: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")] | None = None
    since: Instant | None = None
    until: Instant | None = None


class DeadLettersAct(Body):
    """Body of `POST /admin/v1/dlq/redrive` and `/discard`: which ones, how fast, why; `dryRun` only counts."""

    ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=64)], ...],
        Field(strict=False, min_length=1, max_length=1_000),
    ] | None = None  # fmt: skip
    filter: DeadLettersFilter | None = None
    rate_per_second: Annotated[float, Field(ge=0.01, le=1_000, allow_inf_nan=False)] = 10.0
    dry_run: bool = False
    cursor: Annotated[str, Field(max_length=512)] | None = None
    reason: Reason = ""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise _fault("needs either ids or a filter; the filter {} means all dead letters", "")
        if self.cursor is not None and not self.dry_run:
            raise _fault("goes with a dry run", "/cursor")
        if not self.dry_run and not self.reason.strip():
            raise _fault("says why, for the log", "/reason")
        return self


class AdminJobsErase(JobsErase):
    """Body of `POST /admin/v1/jobs/erase`: the jobs of one end user of a tenant."""

    tenant_id: Annotated[str, Field(min_length=1, max_length=64)]
    reason: Annotated[Reason, Field(min_length=1)]


class WorkerDrain(Body):
    """Body of `POST /admin/v1/workers/{w}/drain`. No deadline: what runs may take its time."""

    deadline_seconds: Annotated[float, Field(ge=0, le=604_800)] | None = None
    reason: Reason = ""


class WorkerModel(Body):
    """Body of `load-model` and `evict-model`. No device: the worker chooses one to load on, and evicts from all."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    device: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    reason: Reason = ""


class PolicyPatch(Body):
    """Body of `PATCH /admin/v1/scheduler/policy`: what is left out stays, null goes back to the setting."""

    tier_weights: dict[Tier, Weight] | None = None
    tier_floors: dict[Tier, Share] | None = None
    lead_seconds: PolicySeconds | None = None
    bypass_seconds: PolicySeconds | None = None
    hold: bool | None = None
    deck_lead_seconds: PolicySeconds | None = None
    reason: Reason = ""


class KeyCreate(Body):
    """Body of `POST /admin/v1/tenants/{t}/keys`."""

    scopes: Annotated[tuple[Scope, ...], Field(strict=False, min_length=1, max_length=len(get_args(Scope)))]
    reason: Reason = ""

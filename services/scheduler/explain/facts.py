"""What the fold says of pauses, budgets and external limits, in the form the reasons need. Pure."""

from dataclasses import dataclass

from contracts.times import DAY_MS
from services.scheduler.fold.limits import Limit
from services.scheduler.fold.records import Job
from services.scheduler.fold.state import PoolState


@dataclass(frozen=True, slots=True)
class Budget:
    """Device time of a tenant in the present day; `limit_ms` None: no limit. `since_ms`: when it was found used up."""

    used_ms: int
    limit_ms: int | None
    resets_at_ms: int
    is_exhausted: bool
    since_ms: int | None = None


class Facts:
    """A reader of the fold."""

    def __init__(self, state: PoolState) -> None:
        self._state = state

    @property
    def configured(self) -> str:
        """Changes with everything an operator does that may delay a job."""
        return self._state.policy_position

    @property
    def pool_paused_ms(self) -> int | None:
        """Since when nothing of the pool is offered; None: it is not paused."""
        return self._state.paused_ms

    def tenant_paused_ms(self, tenant_id: str) -> int | None:
        """Since when nothing of the tenant is offered; None: it is not paused."""
        return self._state.paused_tenants.get(tenant_id)

    def model_paused_ms(self, model: str) -> int | None:
        """Since when nothing of the model is offered; None: it is not paused."""
        paused = self._state.paused_models
        return min((paused[name] for name in (model, model.partition("@")[0]) if name in paused), default=None)

    def budget(self, tenant_id: str, now_ms: int) -> Budget:
        """Return the tenant's device time of today, with a limit or not."""
        state, today = self._state, now_ms // DAY_MS
        rule = state.tenant_rules.get(tenant_id)
        limit_s = None if rule is None else rule.gpu_seconds_per_day
        used_ms = state.budgets.used_ms.get(tenant_id, 0) if state.budgets.day == today else 0
        limit_ms = None if limit_s is None else limit_s * 1000
        is_exhausted, since_ms = state.is_exhausted(tenant_id), state.budgets.told.get(tenant_id)
        return Budget(used_ms, limit_ms, (today + 1) * DAY_MS, is_exhausted, since_ms)

    def resource(self, name: str) -> Limit | None:
        """Return an external limit; None: it is not declared."""
        return self._state.limits.known.get(name)

    def is_limited(self, job: Job) -> bool:
        """Whether the job waits because a provider said "not now"."""
        return job.limited_since_ms is not None

    def in_flight(self, tenant_id: str, user: str | None = None) -> int:
        """Return how many jobs of the tenant, or of one of its users, count against the cap."""
        tenant = self._state.policy.ledger.tenants.get(tenant_id)
        account = tenant if tenant is None or user is None else tenant.users.get(user)
        return 0 if account is None else account.in_flight


def closed_until_ms(limit: Limit) -> int:
    """Return until when a provider has closed a limit; 0: it has not."""
    return max(limit.paused_until_ms, limit.refused_until_ms)

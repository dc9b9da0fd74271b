"""What the fold says of pauses, budgets and external limits, in the form the reasons need. Pure."""

from dataclasses import dataclass

from services.scheduler.fold.records import Job
from services.scheduler.fold.state import PoolState

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Device time of a tenant in the present day. `exhausted_ms`: since when nothing is left."""

    used_ms: int
    limit_ms: int
    resets_at_ms: int
    exhausted_ms: int | None


@dataclass(frozen=True, slots=True)
class Limit:
    """An external rate limit."""

    rate: int
    window_ms: int
    tokens: int
    paused_until_ms: int


class Facts:
    """A reader of the fold."""

    def __init__(self, state: PoolState) -> None:
        self._state = state

    @property
    def pool_paused_ms(self) -> int | None:
        """Since when the pool is paused."""
        return None

    @property
    def configured(self) -> str:
        """Changes with everything an operator does that may delay a job."""
        return self._state.policy_position

    def tenant_paused_ms(self, tenant_id: str) -> int | None:
        """Since when the tenant is paused."""
        return None

    def model_paused_ms(self, model: str) -> int | None:
        """Since when the model is paused."""
        return None

    def budget(self, tenant_id: str) -> Budget | None:
        """Return the tenant's budget; None: it has none."""
        return None

    def use_of_today(self, tenant_id: str, now_ms: int) -> Budget:
        """Return what the tenant has used of the present day, with a budget or not."""
        return Budget(0, 0, (now_ms // _DAY_MS + 1) * _DAY_MS, None)

    def resource(self, name: str) -> Limit | None:
        """Return an external limit; None: it is not declared."""
        return None

    def is_limited(self, job: Job) -> bool:
        """Whether the job waits because a provider said "not now"."""
        return False

    def in_flight(self, tenant_id: str, user: str | None = None) -> int:
        """Return how many jobs of the tenant, or of one of its users, count against the cap."""
        tenant = self._state.policy.ledger.tenants.get(tenant_id)
        account = tenant if tenant is None or user is None else tenant.users.get(user)
        return 0 if account is None else account.in_flight

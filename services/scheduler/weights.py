"""Which tenants weigh differently in the configuration than in the pool's own log. Pure but for its memory.

The fold may use only what its own log says, so the leader copies weights into it (`policy.applied`).
"""

from contracts.policy import DEFAULT_WEIGHTS
from contracts.tenant import Configuration, Tenant
from services.scheduler.fold.accounts import DEFAULT_WEIGHT_MILLI
from services.scheduler.fold.state import PoolState

MOST_AT_ONCE = 500


class Weights:
    """Compares configuration and fold, only when the configuration has moved."""

    def __init__(self) -> None:
        self._compared = ""

    def changed(self, configuration: Configuration, state: PoolState) -> tuple[str, dict[str, float]] | None:
        """Return position and weights to copy, None when the log agrees."""
        if configuration.position == self._compared:
            return None
        known = state.policy.weights
        weights = {
            tenant.id: _weight(tenant)
            for tenant in configuration.tenants.values()
            if round(_weight(tenant) * 1000) != known.get(tenant.id, DEFAULT_WEIGHT_MILLI)
        }
        if not weights:
            self._compared = configuration.position
            return None
        return configuration.position, dict(sorted(weights.items())[:MOST_AT_ONCE])


def _weight(tenant: Tenant) -> float:
    return DEFAULT_WEIGHTS[tenant.tier] * tenant.weight

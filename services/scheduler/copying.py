"""What the configuration says otherwise than the pool's own log. Pure but for its memory.

The fold may use only what its own log says, so the leader copies what it will use into it (`policy.applied`): the knobs
(settings, overridden by `policy.changed`), tenants, pauses and external limits.
"""

from dataclasses import dataclass

from contracts import events as ev
from contracts.policy import SchedulingPolicy
from contracts.tenant import Configuration, Tenant
from services.scheduler.fold.accounts import DEFAULT_WEIGHT_MILLI
from services.scheduler.fold.state import PoolState

MOST_AT_ONCE = 500  # tenants in one entry


@dataclass(frozen=True, slots=True)
class _Wanted:
    weights: dict[str, float]
    tenants: dict[str, ev.TenantRule]


class Copying:
    """Compares configuration and fold, only when the configuration has moved."""

    def __init__(self, pool: str, defaults: SchedulingPolicy) -> None:
        self._pool, self._defaults = pool, defaults
        self._compared = ""

    def changed(self, configuration: Configuration, state: PoolState) -> ev.PolicyApplied | None:
        """Return what to copy, None when the log agrees."""
        if configuration.position == self._compared:
            return None
        policy = self._policy(configuration)
        found = _tenants(configuration, policy, state)
        models, resources = tuple(sorted(configuration.paused_models)), configuration.resources
        paused = self._pool in configuration.paused_pools
        known_resources = {
            name: ev.ResourceRule(rate=limit.rate, window_ms=limit.window_ms)
            for name, limit in state.limits.known.items()
        }
        event = ev.PolicyApplied(
            position=configuration.position,
            weights=found.weights,
            tenants=found.tenants or None,
            policy=policy.facts() if policy != SchedulingPolicy().changed(state.policy.knobs.facts) else None,
            paused=paused if paused != state.paused else None,
            paused_models=models if set(models) != state.policy.boards.paused_models else None,
            resources=resources if resources.items() - known_resources.items() else None,
        )
        if event == ev.PolicyApplied(position=configuration.position):
            self._compared = configuration.position
            return None
        return event

    def _policy(self, configuration: Configuration) -> SchedulingPolicy:
        facts = configuration.policies.get(self._pool)
        if facts is None:
            return self._defaults
        try:
            return self._defaults.changed(facts)
        except ValueError:  # a knob was changed under other settings; together they leave the bounds
            return self._defaults


def rule_of(tenant: Tenant) -> ev.TenantRule:
    """Return what a choice uses of a tenant."""
    limits = tenant.limits
    return ev.TenantRule(
        tier=tenant.tier,
        concurrency=limits.concurrency,
        user_concurrency=limits.user_concurrency,
        gpu_seconds_per_day=limits.gpu_seconds_per_day,
        paused=tenant.paused,
    )


def _tenants(configuration: Configuration, policy: SchedulingPolicy, state: PoolState) -> _Wanted:
    known_weights, known_rules, plain = state.policy.weights, state.tenant_rules, ev.TenantRule()
    found = _Wanted({}, {})
    for tenant in sorted(configuration.tenants.values(), key=lambda tenant: tenant.id):
        weight, rule = policy.tier_weights[tenant.tier] * tenant.weight, rule_of(tenant)
        is_known = round(weight * 1000) == known_weights.get(tenant.id, DEFAULT_WEIGHT_MILLI)
        if not is_known or rule != known_rules.get(tenant.id, plain):
            found.weights[tenant.id] = weight
            found.tenants[tenant.id] = rule
            if len(found.weights) == MOST_AT_ONCE:
                break
    return found

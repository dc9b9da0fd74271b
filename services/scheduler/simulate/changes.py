"""What the scheduler is told while the simulation runs, as recorded or as it would have been otherwise. Pure."""

from collections.abc import Mapping, Sequence

from contracts import events as ev
from contracts.policy import SchedulingPolicy

Change = tuple[int, ev.PolicyApplied]  # ms of the simulated clock; what it does not name stays


def from_the_start(
    tiers: Mapping[str, ev.Tier], policy: SchedulingPolicy, weights: Mapping[str, float] | None = None
) -> Change:  # fmt: skip
    """Return what holds from the first moment on. `weights`: of tenants inside their tier, 1 where it names none."""
    scale = weights or {}
    rules = {tenant: ev.TenantRule(tier=tier) for tenant, tier in sorted(tiers.items())}
    charged = {tenant: policy.tier_weights[rule.tier] * scale.get(tenant, 1.0) for tenant, rule in rules.items()}
    return 0, ev.PolicyApplied(position="1-0", weights=charged, tenants=rules, policy=policy.facts())


def altered(changes: Sequence[Change], knobs: ev.PolicyFacts, weights: Mapping[str, float]) -> list[Change]:
    """Return the changes as if these knobs and these weights inside their tiers had held all the time.

    Raises ValueError for a policy that is out of bounds.
    """
    policy, tiers, made = SchedulingPolicy(), dict[str, ev.Tier](), list[Change]()
    for at_ms, applied in changes:
        policy = policy if applied.policy is None else policy.changed(applied.policy)
        wanted = policy.changed(knobs)
        tiers |= {tenant: rule.tier for tenant, rule in (applied.tenants or {}).items()}
        charged = dict[str, float]()
        for tenant, weight in applied.weights.items():
            tier = tiers.get(tenant, "standard")
            charged[tenant] = wanted.tier_weights[tier] * weights.get(tenant, weight / policy.tier_weights[tier])
        facts = None if applied.policy is None else wanted.facts()
        made.append((at_ms, applied.model_copy(update={"weights": charged, "policy": facts})))
    return made

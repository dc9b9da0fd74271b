"""What the leader copies of the configuration into its own log."""

from contracts import events as ev
from contracts.policy import SchedulingPolicy
from contracts.tenant import Configuration, Tenant
from services.scheduler.copying import Copying
from tests.scheduler.world import World

LIMIT = {"moderation": ev.ResourceRule(rate=2, window_ms=1_000)}


def test_the_leader_copies_every_knob_rule_pause_and_limit_once() -> None:
    world = World()
    limits = ev.TenantLimits(concurrency=2, gpu_seconds_per_day=60)
    configuration = Configuration(
        position="7-0",
        tenants={"t_paid": Tenant("t_paid", "enterprise", 0.5, limits, paused=True), "t_plain": Tenant("t_plain")},
        policies={"default": ev.PolicyFacts(lead_s=5, tier_weights={"enterprise": 4})},
        paused_pools=frozenset({"default"}),
        paused_models=frozenset({"echo"}),
        resources=LIMIT,
    )
    copying = Copying("default", SchedulingPolicy(bypass_s=30))

    event = copying.changed(configuration, world.state)
    assert event is not None
    assert (event.weights, event.paused, event.paused_models) == ({"t_paid": 2.0}, True, ("echo",))
    assert event.tenants == {
        "t_paid": ev.TenantRule(tier="enterprise", concurrency=2, gpu_seconds_per_day=60, paused=True)
    }
    assert event.policy is not None
    assert (event.policy.lead_s, event.policy.bypass_s) == (5, 30)
    world.turn(policy=event)

    assert copying.changed(configuration, world.state) is None
    assert Copying("default", SchedulingPolicy(bypass_s=30)).changed(configuration, world.state) is None


def test_an_installation_that_configures_nothing_copies_nothing() -> None:
    assert Copying("default", SchedulingPolicy()).changed(Configuration(position="1-0"), World().state) is None

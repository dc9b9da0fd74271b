"""Pauses, and the budget of a day, on a pool without a store."""

from contracts import events as ev
from contracts.job import JobStatus
from contracts.times import DAY_MS
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.verify import verify
from tests.scheduler.world import World

LIMIT = {"moderation": ev.ResourceRule(rate=2, window_ms=1_000)}


def test_a_pause_takes_back_what_lies_on_decks_and_lets_run_what_runs() -> None:
    for facts in (
        {"paused": True},
        {"paused_models": ("echo",)},
        {"weights": {"t_a": 3.0}, "tenants": {"t_a": ev.TenantRule(paused=True)}},
    ):
        world = World()
        world.worker()
        running, waiting = world.submit(), world.submit()
        world.turn()
        world.start(running)
        world.turn()
        assert world.on_decks() == [waiting]

        world.configured(**facts)
        world.turns()

        assert world.on_decks() == []
        assert world.types(waiting)[-1] == "job.unassigned"
        assert world.job(waiting).not_before_ms is None
        assert world.job(running).status is JobStatus.IN_PROGRESS
        assert dump(load(dump(world.state))) == dump(world.state)
        world.configured(paused=False, paused_models=(), tenants={"t_a": ev.TenantRule()})
        world.turns()
        assert world.on_decks() == [waiting]
        assert verify(world.entries) == []


def test_a_budget_of_the_day_parks_its_tenant_is_told_once_and_is_whole_again_after_midnight() -> None:
    world = World()
    world.worker(slots=2)
    world.configured(weights={"t_a": 3.0}, tenants={"t_a": ev.TenantRule(gpu_seconds_per_day=15)})
    first = world.submit()
    world.turns()
    world.start(first)
    second, other = world.submit(), world.submit("t_b")
    world.turns()
    world.start(second)
    third = world.submit()
    world.turns()
    told = [entry.event() for entry in world.entries if entry.type == "tenant.budget_exhausted"]
    assert [(event.used_gpu_seconds, event.limit_gpu_seconds) for event in told] == [(20, 15)]  # type: ignore[union-attr]
    assert world.on_decks() == [other]

    world.complete(first, gpu_ms=3_000)  # a true-up frees budget, too
    world.turns()
    assert third in world.on_decks()
    world.decline(third, "overtaken")
    world.complete(second, gpu_ms=30_000)
    world.turns()
    assert third not in world.on_decks()

    midnight_ms = (world.now_ms // DAY_MS + 1) * DAY_MS
    assert world.state.budgets.renews_at_ms == midnight_ms
    world.now_ms = midnight_ms
    world.turns()

    assert [entry.type for entry in world.entries].count("budgets.renewed") == 1
    assert third in world.on_decks()
    assert verify(world.entries) == []

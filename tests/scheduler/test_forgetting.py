"""What may be forgotten and trimmed, on a pool without a store."""

from contracts import events as ev
from services.scheduler.retention import trim_below
from tests.scheduler.world import RULES, World

LATER = "9999999999999-0"


def test_a_job_is_forgotten_when_retention_is_over_and_its_deliveries_are_planned() -> None:
    world = World()
    world.worker("w1")
    job_id = world.running()
    world.complete(job_id)
    world.now_ms += RULES.retention.completed_ms - 1
    assert world.turn(needed_from=LATER) == []
    world.now_ms += 1
    assert world.turn(needed_from=world.job(job_id).last) == []

    (decision,) = world.turn(needed_from=LATER)

    assert decision.write.forget == ("t_a", RULES.known_for_s)
    assert job_id not in world.state.jobs


def test_a_job_that_was_retried_meanwhile_is_kept() -> None:
    world = World()
    job_id = world.submit()
    world.cancel(job_id)
    world.write(job_id, ev.JobRetried(by="t", from_status="cancelled", run=2, max_attempts=3))
    world.now_ms += 10 * RULES.retention.failed_ms

    assert world.turn(needed_from=LATER) == []


def test_the_log_is_trimmed_below_the_oldest_job_the_notifier_and_the_snapshot() -> None:
    world = World()
    world.worker("w1")
    first = world.running()
    second = world.submit()
    world.complete(first)
    kept = world.job(first).first
    assert trim_below(world.state, LATER, LATER) == kept
    assert trim_below(world.state, "1-0", LATER) == "1-0"
    assert trim_below(world.state, LATER, "2-0") == "2-0"

    world.now_ms += RULES.retention.completed_ms
    world.turn(needed_from=LATER)

    assert trim_below(world.state, LATER, LATER) == world.job(second).first
    world.cancel(second)
    world.now_ms += RULES.retention.failed_ms
    world.turn(needed_from=LATER)
    assert trim_below(world.state, LATER, LATER) == world.state.position

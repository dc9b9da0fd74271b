"""When the time of a job or of its attempt has come, on a pool without a store."""

from contracts import events as ev
from contracts.job import JobStatus
from services.scheduler.clock import ServerClock
from services.scheduler.fold.timers import Clock
from services.scheduler.turns import MOST_TIMERS, next_due_ms
from tests.scheduler.world import RULES, World

LATER = "9999999999999-0"


def test_a_scheduled_job_is_queued_when_its_time_has_come_and_offered_in_the_turn_after() -> None:
    world = World()
    world.worker()
    job_id = world.submit(run_at_ms=world.now_ms + 5_000)
    assert world.turn() == []
    assert next_due_ms(world.state, RULES, world.now_ms) == world.now_ms + 5_000

    world.now_ms += 5_000
    world.turns()

    assert world.types(job_id)[2:] == ["job.queued", "job.assigned"]


def test_a_failed_job_waits_for_its_delay_and_keeps_its_place_in_line() -> None:
    """Field case 20: a retried job goes to the head of its class after its delay."""
    world = World()
    world.worker()
    first = world.running()
    second = world.submit()
    world.fail(first, delay_ms=1_000)
    third = world.submit()
    world.turn()
    assert world.on_decks() == [second]

    world.now_ms += 1_000
    world.turn()
    world.start(second)
    world.turns()

    assert world.on_decks() == [first]
    assert world.job(third).offers == {}


def test_a_job_expires_on_time_though_every_slot_is_busy_and_it_lies_on_a_deck() -> None:
    """Field cases 56 and 58: start-by does not wait for what runs."""
    world = World()
    world.worker()
    world.running()
    on_deck = world.submit(start_by_ms=2_000)
    waiting = world.submit(start_by_ms=2_000)
    world.turn()
    assert world.on_decks() == [on_deck]

    world.now_ms += 2_000
    decisions = world.turn()

    assert {world.job(job_id).status for job_id in (on_deck, waiting)} == {JobStatus.EXPIRED}
    assert world.on_decks() == []
    (withdrawal,) = [work for decision in decisions for work in decision.write.work]
    assert withdrawal.kind == "withdraw"


def test_a_job_that_started_in_time_does_not_expire_while_it_waits_for_its_retry() -> None:
    world = World()
    world.worker()
    job_id = world.running(start_by_ms=2_000)
    world.fail(job_id, delay_ms=10_000)

    world.now_ms += 5_000

    assert world.turn() == []


def test_a_job_past_its_start_by_clock_is_never_chosen() -> None:
    world = World()
    world.worker()
    job_id = world.submit(start_by_ms=1_000)
    world.now_ms += 1_000

    assert world.state.choose(world.now_ms, 10) == ([], [])
    world.turn()
    assert world.job(job_id).status is JobStatus.EXPIRED


def test_ten_thousand_timers_due_at_once_do_not_keep_a_job_from_being_offered() -> None:
    world = World()
    world.worker()
    for _ in range(10_000):
        world.submit(run_at_ms=world.now_ms + 100)
    job_id = world.submit(priority="urgent")
    world.now_ms += 200

    decisions = world.turn()

    assert len(decisions) == MOST_TIMERS + 1
    assert world.on_decks() == [job_id]
    for _ in range(10_000 // MOST_TIMERS - 1):
        world.turn()
    assert world.state.next_due_ms(Clock.QUEUE) is None


def test_an_attempt_whose_worker_never_stops_is_ended_after_the_grace() -> None:
    """Field case 57: a hung attempt does not keep its job for ever."""
    world = World()
    world.worker()
    job_id = world.running(timeout_ms=3_000)

    world.now_ms += 3_000 + RULES.run_grace_ms - 1
    assert world.turn() == []
    world.now_ms += 1
    (decision,) = world.turn()

    assert world.job(job_id).status is JobStatus.QUEUED
    assert [work.kind for work in decision.write.work] == ["cancel"]
    failed = decision.write.events[0]
    assert isinstance(failed, ev.JobAttemptFailed)
    assert (failed.error.code, failed.will_retry) == ("execution_timeout", True)


def test_loading_a_model_does_not_count_as_running() -> None:
    """Field case 56: the clock starts when the handler does."""
    world = World()
    world.worker()
    job_id = world.running(timeout_ms=3_000)
    world.write(job_id, ev.ModelLoadStarted(model="echo@1"), fence=1)
    world.now_ms += 300_000
    assert [decision.write.events[0].TYPE for decision in world.turn()] == ["job.recharged"]

    world.write(job_id, ev.ModelLoadCompleted(model="echo@1", ms=300_000), fence=1)
    world.now_ms += 3_000 + RULES.run_grace_ms - 1
    assert world.turn() == []
    world.now_ms += 1

    assert len(world.turn()) == 1


def test_the_run_for_clock_stops_when_the_device_is_released() -> None:
    world = World()
    world.worker()
    job_id = world.running(timeout_ms=3_000)
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=5), fence=1)
    world.now_ms += 60_000

    assert world.turn() == []


def test_the_servers_time_never_falls() -> None:
    """Field case 130: a clock that is set back neither fires nor delays anything twice."""
    clock = ServerClock()
    clock.hear(10_000, mono_ms=0)
    assert clock.now_ms(500) == 10_500

    clock.hear(4_000, mono_ms=600)

    assert clock.now_ms(600) == 10_500
    assert clock.now_ms(7_200) == 10_600

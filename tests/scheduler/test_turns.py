"""What the leader decides in one turn, on a pool without a store."""

import itertools

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store.replies import Verdict
from contracts.store.words import Word
from services.scheduler.clock import ServerClock
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.timers import Clock
from services.scheduler.leases import LostAttempt, LostWorker
from services.scheduler.retention import trim_below
from services.scheduler.suspicion import Suspicions
from services.scheduler.turns import MOST_TIMERS, next_due_ms
from tests.scheduler.world import RULES, World

LATER = "9999999999999-0"


def running(world: World, **facts: object) -> str:
    """Submit a job and start it."""
    job_id = world.submit(**facts)  # type: ignore[arg-type]
    world.turn()
    world.start(job_id)
    return job_id


# -- clocks ---------------------------------------------------------------------------------------------------------


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
    first = running(world)
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
    running(world)
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
    job_id = running(world, start_by_ms=2_000)
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
    job_id = running(world, timeout_ms=3_000)

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
    job_id = running(world, timeout_ms=3_000)
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
    job_id = running(world, timeout_ms=3_000)
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=5), fence=1)
    world.now_ms += 60_000

    assert world.turn() == []


# -- workers --------------------------------------------------------------------------------------------------------


def test_what_a_lost_worker_held_goes_to_others_and_nothing_is_chosen_in_that_turn() -> None:
    """Field cases 38 and 42: running and reserved jobs of a dead worker go to another one."""
    world = World()
    world.worker("w1")
    first = running(world)
    second = world.submit()
    world.turn()
    world.worker("w2")

    world.turn(lost_workers=[LostWorker("w1", 7, 10_000)])
    assert world.types(first)[-3:] == ["job.lease_lost", "job.attempt_failed", "job.queued"]
    assert world.types(second)[-1] == "job.unassigned"
    assert world.types("w1")[-1] == "worker.lost"
    world.turn()

    # the attempt counts, the place in line is kept
    assert world.offer_of(first).worker_id == "w2"
    assert world.job(first).attempt == 1


def test_a_job_that_lost_its_last_attempt_fails_and_says_why() -> None:
    """Field cases 36 and 44: every lease that is lost is in the log, and the last one ends the job."""
    world = World()
    world.worker("w1")
    job_id = running(world, max_attempts=1)

    (decision, _) = world.turn(lost_workers=[LostWorker("w1", 7, 10_000)])

    assert world.types(job_id)[-3:] == ["job.lease_lost", "job.attempt_failed", "job.failed"]
    failed = decision.write.events[-1]
    assert isinstance(failed, ev.JobFailed)
    assert (failed.error.code, failed.attempts) == ("worker_lost", 1)
    assert decision.write.closes_for == "t_a"


def test_a_lost_job_that_was_asked_to_stop_is_cancelled() -> None:
    world = World()
    world.worker("w1")
    job_id = running(world)
    world.cancel(job_id)

    world.turn(lost_workers=[LostWorker("w1", 7, 10_000)])

    assert world.job(job_id).status is JobStatus.CANCELLED


def test_an_attempt_its_worker_knows_nothing_of_is_reclaimed_and_the_worker_stays() -> None:
    world = World()
    world.worker("w1")
    job_id = running(world)

    world.turn(lost_attempts=[LostAttempt("w1", job_id, 1, 9)])

    assert world.job(job_id).status is JobStatus.QUEUED
    assert "w1" in world.state.workers
    world.turn()
    assert world.offer_of(job_id).worker_id == "w1"


def test_what_a_drained_worker_left_behind_is_taken_back() -> None:
    world = World()
    world.worker("w1")
    job_id = running(world)
    world.write("w1", ev.WorkerDrained(worker_id="w1"))

    world.turns()

    assert world.types(job_id)[-3:] == ["job.lease_lost", "job.attempt_failed", "job.queued"]


def test_a_draining_worker_is_offered_nothing() -> None:
    """Field case 48: what drains takes nothing new."""
    world = World()
    world.worker("w1")
    world.write("w1", ev.WorkerDraining(worker_id="w1"))
    world.submit()

    assert world.turn() == []


def test_a_job_that_is_declined_again_and_again_is_offered_at_a_falling_rate() -> None:
    """Field case 28: a job that nobody takes does not spin."""
    world = World()
    world.worker("w1")
    job_id = world.submit()
    offers = []
    for _ in range(600):
        world.turns()
        if world.on_decks():
            offers.append(world.now_ms)
            world.decline(job_id)
        world.now_ms += 500

    gaps = [later - before for before, later in itertools.pairwise(offers)]
    assert gaps == sorted(gaps)
    assert len(offers) < 15


def test_a_hand_back_costs_no_attempt_and_no_device_time() -> None:
    world = World()
    world.worker("w1")
    job_id = running(world)
    world.write(job_id, ev.JobQueued(reason="handed_back", attempt=0), fence=1)

    world.turn()

    assert world.job(job_id).attempt == 0
    assert world.offer_of(job_id).worker_id == "w1"


# -- refusals -------------------------------------------------------------------------------------------------------


def test_a_decision_that_is_refused_twice_without_a_reason_sets_the_job_aside() -> None:
    world, suspicions = World(), Suspicions()
    world.worker("w1")
    job_id = world.submit()
    for _ in range(2):
        decisions = _unwritten(world)
        assert len(decisions) == 1
        suspicions.note(decisions[0], Verdict(Word.CONFLICT, "1-0", "job"), world.state.position)
        mismatches = suspicions.judge(world.state)

    world.turn(mismatches=mismatches)

    assert world.job(job_id).aside
    assert world.turns() is None
    assert world.on_decks() == []
    assert (world.state.aside_count, load(dump(world.state)).aside_count) == (1, 1)
    world.cancel(job_id)
    assert world.state.aside_count == 0


def test_a_slot_that_refuses_twice_without_a_reason_is_set_aside_and_the_job_goes_elsewhere() -> None:
    world, suspicions = World(), Suspicions()
    world.worker("w1")
    job_id = world.submit()
    for _ in range(2):
        suspicions.note(_unwritten(world)[0], Verdict(Word.REFUSED, "1-0", "worker"), world.state.position)
        mismatches = suspicions.judge(world.state)
    world.worker("w2")

    world.turn(mismatches=mismatches)
    world.turn()

    assert world.offer_of(job_id).worker_id == "w2"
    assert (world.state.aside_count, load(dump(world.state)).aside_count) == (1, 1)
    world.write("w1", ev.WorkerDrained(worker_id="w1"))
    assert world.state.aside_count == 0


def test_a_refusal_that_the_log_explains_is_forgotten() -> None:
    world, suspicions = World(), Suspicions()
    world.worker("w1")
    job_id = world.submit()
    for _ in range(4):
        basis = world.state.position
        suspicions.note(_unwritten(world)[0], Verdict(Word.CONFLICT, "1-0", "job"), basis)
        world.write(job_id, ev.JobEventRejected(offending_type="job.progress", why="fenced"))

        assert suspicions.judge(world.state) == []


def test_a_heartbeat_that_moved_on_is_no_contradiction() -> None:
    world, suspicions = World(), Suspicions()
    world.worker("w1")
    running(world)
    for _ in range(4):
        lost = _unwritten(world, lost_workers=[LostWorker("w1", 3, 10_000)])
        for decision in lost:
            suspicions.note(decision, Verdict(Word.CONFLICT, "1-0", "worker"), world.state.position)

        assert suspicions.judge(world.state) == []


# -- forgetting and time --------------------------------------------------------------------------------------------


def test_a_job_is_forgotten_when_retention_is_over_and_its_deliveries_are_planned() -> None:
    world = World()
    world.worker("w1")
    job_id = running(world)
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
    first = running(world)
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


def test_the_servers_time_never_falls() -> None:
    """Field case 130: a clock that is set back neither fires nor delays anything twice."""
    clock = ServerClock()
    clock.hear(10_000, mono_ms=0)
    assert clock.now_ms(500) == 10_500

    clock.hear(4_000, mono_ms=600)

    assert clock.now_ms(600) == 10_500
    assert clock.now_ms(7_200) == 10_600


def _unwritten(world: World, **seen: object) -> list:  # type: ignore[type-arg]
    """Plan a turn that the store then refuses: nothing of it is written."""
    written = world.write
    world.write = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        return world.turn(**seen)
    finally:
        world.write = written  # type: ignore[method-assign]

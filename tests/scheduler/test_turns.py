"""What the leader decides of workers and what they held, on a pool without a store."""

import itertools

from contracts import events as ev
from contracts.job import JobStatus
from services.scheduler.leases import LostAttempt, LostWorker
from tests.scheduler.world import World

LATER = "9999999999999-0"


def test_what_a_lost_worker_held_goes_to_others_and_nothing_is_chosen_in_that_turn() -> None:
    """Field cases 38 and 42: running and reserved jobs of a dead worker go to another one."""
    world = World()
    world.worker("w1")
    first = world.running()
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
    job_id = world.running(max_attempts=1)

    (decision, _) = world.turn(lost_workers=[LostWorker("w1", 7, 10_000)])

    assert world.types(job_id)[-3:] == ["job.lease_lost", "job.attempt_failed", "job.failed"]
    failed = decision.write.events[-1]
    assert isinstance(failed, ev.JobFailed)
    assert (failed.error.code, failed.attempts) == ("worker_lost", 1)
    assert decision.write.closes_for == "t_a"


def test_a_lost_job_that_was_asked_to_stop_is_cancelled() -> None:
    world = World()
    world.worker("w1")
    job_id = world.running()
    world.cancel(job_id)

    world.turn(lost_workers=[LostWorker("w1", 7, 10_000)])

    assert world.job(job_id).status is JobStatus.CANCELLED


def test_an_attempt_its_worker_knows_nothing_of_is_reclaimed_and_the_worker_stays() -> None:
    world = World()
    world.worker("w1")
    job_id = world.running()

    world.turn(lost_attempts=[LostAttempt("w1", job_id, 1, 9)])

    assert world.job(job_id).status is JobStatus.QUEUED
    assert "w1" in world.state.workers
    world.turn()
    assert world.offer_of(job_id).worker_id == "w1"


def test_what_a_drained_worker_left_behind_is_taken_back() -> None:
    world = World()
    world.worker("w1")
    job_id = world.running()
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
    job_id = world.running()
    world.write(job_id, ev.JobQueued(reason="handed_back", attempt=0), fence=1)

    world.turn()

    assert world.job(job_id).attempt == 0
    assert world.offer_of(job_id).worker_id == "w1"

"""What becomes of decisions that the store refuses, on a pool without a store."""

from contracts import events as ev
from contracts.store.replies import Verdict
from contracts.store.words import Word
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.leases import LostWorker
from services.scheduler.suspicion import Suspicions
from tests.scheduler.world import World

LATER = "9999999999999-0"


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
    world.running()
    for _ in range(4):
        lost = _unwritten(world, lost_workers=[LostWorker("w1", 3, 10_000)])
        for decision in lost:
            suspicions.note(decision, Verdict(Word.CONFLICT, "1-0", "worker"), world.state.position)

        assert suspicions.judge(world.state) == []


def _unwritten(world: World, **seen: object) -> list:  # type: ignore[type-arg]
    """Plan a turn that the store then refuses: nothing of it is written."""
    written = world.write
    world.write = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        return world.turn(**seen)
    finally:
        world.write = written  # type: ignore[method-assign]

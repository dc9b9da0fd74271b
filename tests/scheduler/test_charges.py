"""What an attempt is charged for: long runs, faults that are nobody's, decks that were filled for nothing."""

from contracts import events as ev
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.turns import next_due_ms
from tests.scheduler.world import RULES, World

LIMIT = {"moderation": ev.ResourceRule(rate=2, window_ms=1_000)}


def test_a_run_far_beyond_its_estimate_is_charged_again_and_again_but_rarely() -> None:
    world = World()
    world.worker()
    job_id = world.running(timeout_ms=10_000_000)
    began_ms = world.now_ms
    for _ in range(8):
        due_ms = next_due_ms(world.state, RULES, world.now_ms)
        assert due_ms is not None
        world.now_ms = due_ms
        world.turns()

    charges = [entry.event().gpu_ms for entry in world.entries if entry.type == "job.recharged"]  # type: ignore[union-attr]
    assert charges == [20_000 << n for n in range(8)]
    assert world.job(job_id).charged_ms == charges[-1] <= world.now_ms - began_ms


def test_device_time_of_an_infrastructure_fault_is_given_back() -> None:
    world = World()
    world.worker()
    job_id = world.running()
    error = ev.ErrorFacts(code="artifact_upload_failed", retryable=True)
    failed = ev.JobAttemptFailed(
        error=error, attempt=1, will_retry=True, next_attempt_at_ms=world.now_ms + 1, gpu_ms=800
    )
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=800), failed, fence=1)
    assert world.state.budgets.used_ms == {}

    world.now_ms += 1
    world.turns()
    world.start(job_id)
    crash = ev.ErrorFacts(code="child_exited", retryable=True, exit_code=3)
    world.write(job_id, ev.JobAttemptFailed(error=crash, attempt=2, will_retry=False, gpu_ms=800), fence=2)
    assert world.state.budgets.used_ms == {"t_a": 800}


def test_the_other_decks_of_a_job_that_started_are_freed_by_the_leader() -> None:
    world = World()
    for name in ("w1", "w2", "w3"):
        world.worker(name)
    job_id = world.submit()
    for number, name in enumerate(("w1", "w2", "w3")):
        event = ev.JobAssigned(worker_id=name, offer_id=f"x{number}", slot=0, device="dev-0", est_ms=1_000)
        world.write(job_id, event)
    start = ev.JobStarted(worker_id="w2", offer_id="x1", slot=0, device="dev-0", attempt=1)
    world.write(job_id, start, fence=1)
    later = world.submit()
    assert world.on_decks() == [job_id, job_id]
    assert dump(load(dump(world.state))) == dump(world.state)

    made = world.turn()

    assert sorted(decision.write.subject for decision in made) == ["w1", "w3"]
    assert [decision.write.work[0].kind for decision in made] == ["withdraw", "withdraw"]
    world.turns()
    assert world.on_decks() == [later]

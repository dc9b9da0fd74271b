"""How long a job will take: what is learnt from whole runs, model by model and bucket by bucket."""

from contracts import events as ev
from services.scheduler.fold.estimates import MOST_BUCKETS, UNKNOWN_MS, Estimates
from services.scheduler.fold.snapshot import dump, load
from tests.scheduler.world import World

MODEL = "echo@1"


def run(world: World, gpu_ms: int, load_ms: int = 0, **facts: object) -> str:
    """Bring a job through a whole run; `load_ms` 0: its model was there."""
    job_id = world.submit(**facts)  # type: ignore[arg-type]
    world.turn()
    world.start(job_id)
    if load_ms:
        world.write(job_id, ev.ModelLoadStarted(model=MODEL), ev.ModelLoadCompleted(model=MODEL, ms=load_ms), fence=1)
    world.complete(job_id, gpu_ms)
    return job_id


def test_the_nearest_knowledge_counts() -> None:
    estimates = Estimates()
    assert estimates.run_ms("a", "steps=9") == UNKNOWN_MS
    estimates.learn_run("b", "steps=9", 100)
    assert estimates.run_ms("a", "steps=9") == 100
    estimates.learn_run("a", "steps=9", 500)
    assert (estimates.run_ms("a", "steps=9"), estimates.run_ms("a", "steps=10")) == (500, 500)
    estimates.learn_run("a", "steps=10", 900)
    assert (estimates.run_ms("a", "steps=10"), estimates.run_ms("a", "steps=11")) == (900, 550)


def test_a_model_with_very_many_buckets_keeps_a_bounded_number_of_them() -> None:
    estimates = Estimates()
    for number in range(2 * MOST_BUCKETS):
        estimates.learn_run("a", f"steps={number}", 100)
    kept = estimates.snapshot()["runs"]["a"]
    assert len(kept) == MOST_BUCKETS + 1
    assert estimates.run_ms("a", f"steps={2 * MOST_BUCKETS - 1}") == 100


def test_loading_is_learnt_apart_from_running() -> None:
    world = World()
    world.worker()
    run(world, 5_000, load_ms=4_000, bucket="steps=9")
    assert (world.state.estimates.run_ms(MODEL, "steps=9"), world.state.estimates.load_ms(MODEL)) == (1_000, 4_000)


def test_an_attempt_that_did_not_complete_teaches_nothing() -> None:
    world = World()
    world.worker()
    job_id = world.running()
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=3), ev.JobCancelled(how="cooperative"), fence=1)
    assert world.state.estimates.run_ms(MODEL) == UNKNOWN_MS


def test_the_fold_knows_which_model_is_in_memory_until_the_child_is_gone() -> None:
    world = World()
    world.worker()
    slot = world.state.workers["w1"].slots[0]
    run(world, 5_000, load_ms=4_000)
    assert slot.resident == (MODEL,)

    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=(_info(),)))
    assert slot.resident == ()
    run(world, 5_000, load_ms=4_000)
    job_id = world.running()
    # a heartbeat that was collected before the load ended says nothing about a slot that runs
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=(_info(),)))
    world.write(job_id, ev.ModelLoadCompleted(model=MODEL, ms=4_000), fence=1)
    assert slot.resident == (MODEL,)

    error = ev.ErrorFacts(code="child_crashed", retryable=True, signal=11)
    world.write(job_id, ev.JobAttemptFailed(error=error, attempt=1, will_retry=True, next_attempt_at_ms=0), fence=1)
    assert slot.resident == ()


def test_estimates_and_memory_are_in_the_snapshot() -> None:
    world = World()
    world.worker()
    run(world, 5_000, load_ms=4_000, bucket="steps=9", resources={"moderation": 2})
    assert dump(load(dump(world.state))) == dump(world.state)


def _info() -> ev.SlotInfo:
    return ev.SlotInfo(index=0, device="dev-0", kind="sim", bytes=0)


def test_the_fold_knows_several_models_of_a_device_and_who_left_for_whom() -> None:
    world = World()
    world.worker(slots=2, device="dev-0", models=("a", "b", "c"))
    slots = world.state.workers["w1"].slots
    told = [ev.SlotInfo(index=i, device="dev-0", kind="sim", bytes=0, models=("a@1", "b@1")) for i in range(2)]
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=tuple(told)))
    assert slots[0].resident == slots[1].resident == ("a@1", "b@1")

    job_id = world.submit(model="c@1")
    world.turn()
    index = world.start(job_id).slot or 0
    assert slots[index].resident == ("c@1",)  # nobody knows yet who leaves, so nobody is counted on

    world.write(job_id, ev.ModelLoadCompleted(model="c@1", ms=100, evicted=("a@1",)), fence=1)
    assert (slots[index].resident, slots[1 - index].resident) == (("c@1",), ("b@1", "c@1"))
    told = [each.model_copy(update={"models": ("b@1", "c@1")}) for each in told]
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=tuple(told)))
    assert slots[0].resident == slots[1].resident == ("b@1", "c@1")

    error = ev.ErrorFacts(code="child_crashed", retryable=True, signal=11)
    world.write(job_id, ev.JobAttemptFailed(error=error, attempt=1, will_retry=True, next_attempt_at_ms=0), fence=1)
    assert slots[index].resident == ("b@1",)

"""Where a job stands among those of its own tenant and priority, and where it stands again."""

from contracts import events as ev
from services.scheduler.verify import verify
from tests.scheduler.world import World


def next_started(world: World) -> str:
    """Let the leader come to rest and start what lies on the deck."""
    world.turns()
    (job_id,) = world.on_decks()
    world.start(job_id)
    return job_id


def test_fifty_jobs_of_one_key_start_in_the_order_of_their_submission() -> None:
    """Field case 20, the first half."""
    world = World()
    world.worker(slots=1)
    jobs = [world.submit() for _ in range(50)]

    started = []
    for _ in jobs:
        started.append(next_started(world))
        world.complete(started[-1])

    assert started == jobs
    assert verify(world.entries) == []


def test_a_retried_job_is_the_head_of_its_class_when_its_delay_is_over() -> None:
    """Field case 20, the second half: its age counts from its first submission, its delay is not skipped.

    What lies on a deck by then stays there: it is handed over already.
    """
    world = World()
    world.worker(slots=1)
    jobs = [world.submit() for _ in range(5)]
    assert next_started(world) == jobs[0]
    world.fail(jobs[0], delay_ms=500)
    assert next_started(world) == jobs[1]

    world.now_ms += 499
    world.turns()
    assert world.on_decks() == [jobs[2]]
    world.now_ms += 1
    world.turns()

    started = []
    for running in (jobs[1], jobs[2], jobs[0], jobs[3]):
        world.complete(running)
        started.append(next_started(world))
    assert started == [jobs[2], jobs[0], jobs[3], jobs[4]]
    assert verify(world.entries) == []


def test_a_job_that_a_person_runs_again_stands_at_the_end_as_a_new_one_would() -> None:
    world = World()
    world.worker(slots=1)
    jobs = [world.submit() for _ in range(3)]
    next_started(world)
    world.fail(jobs[0])
    world.write(jobs[0], ev.JobRetried(by="t", from_status="failed", run=2, max_attempts=4))

    started = []
    for _ in jobs:
        started.append(next_started(world))
        world.complete(started[-1])

    assert started == [jobs[1], jobs[2], jobs[0]]


def test_a_job_that_nobody_has_measured_shares_its_device_with_none() -> None:
    world = World()
    world.worker(slots=2, device="dev-0", slot_bytes=100)
    small, unknown, other = world.submit(vram_bytes=40), world.submit(vram_bytes=0), world.submit(vram_bytes=40)
    world.turns()
    assert world.on_decks() == [small, other]  # side by side; the unknown one waits for both
    for job_id in (small, other):
        world.start(job_id)
    for job_id in (small, other):
        world.complete(job_id)
    world.turns()
    assert world.on_decks() == [unknown]
    world.start(unknown)
    later = world.submit(vram_bytes=10)
    world.turns()
    slots = world.state.workers["w1"].slots.values()
    assert [job for slot in slots if slot.running is None for job in slot.deck_offers.values()] == []
    world.complete(unknown)
    world.turns()
    assert later in world.on_decks()
    assert verify(world.entries) == []


def test_a_pinned_model_keeps_its_bytes_for_its_own_jobs() -> None:
    world = World()
    world.worker(slots=1, slot_bytes=100, models=("echo", "other"))
    info = ev.SlotInfo(index=0, device="dev-0", kind="sim", bytes=60, models=("echo@1",), pinned={"echo@1": 40})
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=(info,)))
    own, too_large = world.submit(vram_bytes=90), world.submit(model="other@1", vram_bytes=61)
    world.turns()
    assert world.on_decks() == [own]
    world.start(own)
    world.complete(own)
    fits = world.submit(model="other@1", vram_bytes=60)
    world.turns()
    assert world.on_decks() == [fits]
    assert too_large not in world.on_decks()
    assert verify(world.entries) == []

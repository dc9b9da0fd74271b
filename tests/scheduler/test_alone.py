"""A job that gets a device for itself: it ran out of memory, or asks for more than was ever measured."""

from contracts import events as ev
from services.scheduler.fold.records import Slot
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.state import PoolState
from services.scheduler.verify import verify
from tests.scheduler.world import World


def pool(slots: int = 2, slot_bytes: int = 100) -> World:
    world = World()
    world.worker(slots=slots, device="gpu", slot_bytes=slot_bytes)
    return world


def assigned(world: World, job_id: str) -> ev.JobAssigned:
    """Return the last offer of a job."""
    for entry in reversed(world.entries):
        if entry.subject == job_id and isinstance(event := entry.event(), ev.JobAssigned):
            return event
    raise AssertionError


def slot(state: PoolState, index: int = 0) -> Slot:
    return state.workers["w1"].slots[index]


def test_out_of_memory_gets_the_job_a_device_for_itself_in_its_next_attempt() -> None:
    """Field case 71: the retry runs on an empty device, the others are never affected."""
    world = pool()
    heavy = world.submit(vram_bytes=40)
    world.turns()
    assert (assigned(world, heavy).bytes, assigned(world, heavy).alone) == (40, None)
    world.start(heavy)
    world.fail(heavy, delay_ms=500, alone=True)
    small = world.submit(vram_bytes=10)
    world.turns()
    world.start(small)
    world.now_ms += 500
    world.turns()
    assert world.on_decks() == []  # it may not run beside the small one
    world.complete(small)
    world.turns()
    assert (assigned(world, heavy).bytes, assigned(world, heavy).alone) == (100, True)

    world.start(heavy)
    beside = world.submit(vram_bytes=1)
    world.turns()
    assert world.on_decks() == []
    world.complete(heavy)
    world.turns()
    assert beside in world.on_decks()
    assert verify(world.entries) == []


def test_what_was_never_measured_runs_alone_from_its_first_attempt() -> None:
    world = pool()
    small, beyond = world.submit(vram_bytes=10), world.submit(vram_bytes=20, alone=True)
    world.turns()
    assert world.on_decks() == [small]
    world.start(small)
    world.complete(small)
    world.turns()
    assert assigned(world, beyond).alone is True
    assert slot(world.state).held_bytes == 100


def test_the_whole_device_is_what_it_has_by_then_and_not_what_it_had() -> None:
    world = pool()
    beyond = world.submit(alone=True)
    world.turns()
    world.start(beyond)
    info = [ev.SlotInfo(index=i, device="gpu", kind="sim", bytes=70) for i in range(2)]
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=tuple(info)))
    assert slot(world.state).running_bytes == 70
    world.complete(beyond)
    assert slot(world.state).held_bytes == 0


def test_it_needs_no_less_than_what_it_was_created_with() -> None:
    world = pool(slot_bytes=50)
    large = world.submit(vram_bytes=60, alone=True)
    world.turns()
    assert world.on_decks() == []
    world.worker("w2", slot_bytes=80)
    world.turns()
    assert (assigned(world, large).worker_id, assigned(world, large).bytes) == ("w2", 80)


def test_it_never_shares_a_pass_and_waits_for_no_warm_model() -> None:
    world = pool(slots=1)
    alike = {"max_batch": 4, "bucket": "steps=30", "vram_bytes": 10}
    first, *others = [world.submit(alone=True, **alike), world.submit(**alike), world.submit(**alike)]
    world.turns()
    assert world.on_decks() == [first]
    assert assigned(world, first).batch is None
    world.start(first)
    world.complete(first)
    world.turns()
    assert world.on_decks() == others
    assert verify(world.entries) == []


def test_its_estimate_has_the_load_that_a_fresh_process_needs() -> None:
    world = pool(slots=1)
    info = ev.SlotInfo(index=0, device="gpu", kind="sim", bytes=100, models=("echo@1",))
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=(info,)))
    world.state.estimates.learn_load("echo@1", 30_000)
    world.state.estimates.learn_run("echo@1", "", 1_000)
    warm = world.submit()
    world.turns()
    assert assigned(world, warm).est_ms == 1_000
    world.start(warm)
    world.complete(warm)
    alone = world.submit(alone=True)
    world.turns()
    assert assigned(world, alone).est_ms == 31_000


def test_a_pin_leaves_no_room_beside_it_not_even_for_its_own_model() -> None:
    """Who is alone loads its model anew, in all there is: the pinned copy leaves for it."""
    world = pool()
    infos = [
        ev.SlotInfo(index=i, device="gpu", kind="sim", bytes=60, models=("echo@1",), pinned={"echo@1": 40})
        for i in range(2)
    ]
    world.write("w1", ev.WorkerChanged(worker_id="w1", slots=tuple(infos)))
    alone = world.submit(vram_bytes=90, alone=True)
    world.turns()
    assert assigned(world, alone).bytes == 100
    beside = world.submit(vram_bytes=10)
    world.turns()
    assert world.on_decks() == [alone]
    world.start(alone)
    world.turns()
    assert world.on_decks() == []
    world.complete(alone)
    again = world.submit(vram_bytes=10, alone=True)
    world.turns()
    assert world.on_decks() == [beside]
    world.start(beside)
    world.turns()
    assert world.on_decks() == []
    world.complete(beside)
    world.turns()
    assert world.on_decks() == [again]
    assert verify(world.entries) == []


def test_a_new_run_of_it_is_alone_again() -> None:
    world = pool()
    job_id = world.submit(vram_bytes=10)
    world.turns()
    world.start(job_id)
    world.fail(job_id, delay_ms=1, alone=True)
    world.now_ms += 1
    world.turns()
    world.start(job_id)
    world.fail(job_id)
    world.write(job_id, ev.JobRetried(by="t", from_status="failed", run=2, max_attempts=5))
    world.turns()
    assert assigned(world, job_id).alone is True


def test_a_snapshot_keeps_who_is_alone_and_what_that_takes_up() -> None:
    world = pool(slots=1)
    running, deck = world.submit(alone=True), world.submit(alone=True)
    world.turns()
    world.start(running)
    world.turns()
    assert world.on_decks() == [deck]

    resumed = load(dump(world.state))

    assert [resumed.jobs[job_id].alone for job_id in (running, deck)] == [True, True]
    assert (slot(resumed).running_bytes, slot(resumed).held_bytes, slot(resumed).deck_unmeasured) == (100, 100, 1)
    assert dump(resumed) == dump(world.state)

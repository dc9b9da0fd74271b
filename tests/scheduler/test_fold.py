"""Random histories of a pool: whatever happens, the fold, the choices and the snapshots hold together."""

from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from contracts import events as ev
from contracts.job import JobStatus
from contracts.wire import Entry
from services.scheduler.fold.keeping import dump_policy
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.state import PoolState
from services.scheduler.leases import LostWorker
from services.scheduler.verify import verify
from tests.scheduler.world import World

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit"] * 6 + ["later", "turn", "turn", "turn", "start", "start", "finish", "finish"]
            + ["fail", "retry", "decline", "cancel", "raise", "hand_back", "lose", "drain", "join", "wait", "again"]
            + ["profile"]
        ),
        st.integers(0, 11),
    ),
    max_size=70,
)  # fmt: skip
WORDS = ("urgent", "high", "normal", "low")
FINISHED = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED)


def play(steps: list[tuple[str, int]]) -> World:
    """Let a pool live through the steps; each number picks one of the things the step is about."""
    world = World()
    for name in ("w1", "w2"):
        world.worker(name, slots=2, slot_bytes=10)
    for step, number in steps:
        world.now_ms += 7
        _take(world, step, number)
    return world


def _take(world: World, step: str, n: int) -> None:
    running = [job.id for job in world.state.jobs.values() if job.status is JobStatus.IN_PROGRESS]
    on_deck = sorted(world.on_decks())
    match step:
        case "submit":
            start_by_ms = 3_000 if n % 4 == 0 else None
            batch = {"max_batch": 3, "bucket": "steps=4"} if n in (1, 2, 5, 6) else {}
            world.submit(f"t_{n % 3}", priority=WORDS[n % 4], vram_bytes=n % 12, start_by_ms=start_by_ms, **batch)
        case "later":
            world.submit(f"t_{n % 3}", run_at_ms=world.now_ms + 1_000)
        case "turn":
            world.turn()
        case "wait":
            world.now_ms += 1_500
        case "start" if on_deck:
            world.start(on_deck[n % len(on_deck)])
        case "finish" if running:
            world.complete(running[n % len(running)], gpu_ms=n * 300)
        case "fail" | "retry" if running:
            world.fail(running[n % len(running)], delay_ms=500 if step == "retry" else None)
        case "decline" if on_deck:
            world.decline(on_deck[n % len(on_deck)])
        case "cancel" if world.state.jobs:
            job = list(world.state.jobs.values())[n % len(world.state.jobs)]
            if job.status not in FINISHED:
                world.cancel(job.id)
        case "raise" if world.state.jobs:
            job = list(world.state.jobs.values())[n % len(world.state.jobs)]
            if job.status not in FINISHED:
                world.write(job.id, ev.JobPriorityChanged(priority=WORDS[n % 4], previous="low"), fence=job.fence)
        case "hand_back" if running:
            job = world.job(running[n % len(running)])
            world.write(job.id, ev.JobQueued(reason="handed_back", attempt=job.attempt - 1), fence=job.fence)
        case "lose" if world.state.workers:
            worker_id = sorted(world.state.workers)[n % len(world.state.workers)]
            world.turn(lost_workers=[LostWorker(worker_id, 1, 10_000)])
        case "drain" if world.state.workers:
            worker_id = sorted(world.state.workers)[n % len(world.state.workers)]
            world.write(worker_id, ev.WorkerDraining(worker_id=worker_id))
        case "profile":
            bucket = "steps=4" if n % 2 else None
            source: ev.ProfileSource = "audit" if n == 0 else "drift"
            world.write("w1", ev.ModelProfiled(model="echo@1", bucket=bucket, bytes=n, source=source))
        case "join":
            world.worker(f"x{len(world.entries)}", slots=1 + n % 2, slot_bytes=12)
        case "again":
            ended = [job for job in world.state.jobs.values() if job.status in FINISHED[1:]]
            if ended:
                job = ended[n % len(ended)]
                world.write(
                    job.id,
                    ev.JobRetried(by="t", from_status=job.status, run=job.run + 1, max_attempts=job.attempt + 3),
                )


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_every_choice_can_be_made_again_from_the_log(steps: list[tuple[str, int]]) -> None:
    assert verify(play(steps).entries) == []


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(0, 200))
@example(
    [*[("submit", n) for n in (0, 0, 0, 3, 11)], ("cancel", 0), ("lose", 0), ("turn", 0), ("start", 0), ("turn", 0),
     ("submit", 0)],
    13,
)  # fmt: skip
def test_the_fold_from_any_snapshot_in_the_middle_is_the_same(steps: list[tuple[str, int]], cut: int) -> None:
    world = play(steps)
    cut = min(cut, len(world.entries))
    interrupted = PoolState()
    for entry in world.entries[:cut]:
        interrupted.apply(entry)

    resumed = load(dump(interrupted))
    for entry in world.entries[cut:]:
        resumed.apply(entry)

    assert dump(resumed) == dump(world.state)
    assert resumed.choose(world.now_ms, 50) == world.state.choose(world.now_ms, 50)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_deck_holds_two_jobs_no_job_lies_on_two_decks_and_nothing_is_over_its_bytes(
    steps: list[tuple[str, int]],
) -> None:
    world = play(steps)

    batches = {
        event.offer_id: event.batch or event.offer_id
        for entry in world.entries
        if isinstance(event := entry.event(), ev.JobAssigned)
    }
    offered = Counter(
        (offer.worker_id, offer.slot)
        for offer, _ in {
            batches[offer.id]: (offer, job) for job in world.state.jobs.values() for offer in job.offers.values()
        }.values()
    )
    assert not offered or max(offered.values()) == 1
    assert all(len(job.offers) <= 1 for job in world.state.jobs.values())
    for worker in world.state.workers.values():
        for slot in worker.slots.values():
            assert slot.held_bytes <= slot.bytes
            assert slot.deck is None or worker.id in {o.worker_id for o in world.job(slot.deck).offers.values()}


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_choosing_changes_nothing_and_the_pool_comes_to_rest(steps: list[tuple[str, int]]) -> None:
    world = play(steps)
    before = dump(world.state)

    first = world.state.choose(world.now_ms, 10)

    assert world.state.choose(world.now_ms, 10) == first
    assert dump(world.state) == before
    world.turns()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_nothing_is_owed_when_all_jobs_have_ended(steps: list[tuple[str, int]]) -> None:
    """Field case 16: whatever is cancelled at whatever moment, no slot and no charge leaks."""
    world = play(steps)
    for job in list(world.state.jobs.values()):
        while job.status not in FINISHED:
            if job.status is JobStatus.IN_PROGRESS:
                world.complete(job.id)
            else:
                world.write(job.id, ev.JobCancelled(how="queued"))

    assert world.on_decks() == []
    assert world.state.seating.on_worker == {}
    assert all(slot.running is None for worker in world.state.workers.values() for slot in worker.slots.values())
    policy = dump_policy(world.state.policy)
    assert (policy["charges"], policy["tenants"], world.state.policy.waiting_count) == ({}, {}, 0)


@given(st.text(max_size=20), st.binary(max_size=60), st.sampled_from(["job.created", "job.assigned", "worker.changed"]))
def test_the_fold_passes_whatever_it_cannot_read(subject: str, data: bytes, event_type: str) -> None:
    state = PoolState()

    state.apply(Entry("5-0", event_type, subject, data))
    state.apply(Entry("6-0", "job.teleported", subject, data))

    assert (state.position, state.entries_read, state.jobs) == ("6-0", 2, {})


def test_members_of_a_batch_share_a_deck_and_then_a_device_and_their_bytes_count_singly() -> None:
    """A snapshot in the middle of it tells the same."""
    world = World()
    world.worker(slot_bytes=1_000)
    jobs = [world.submit(vram_bytes=100) for _ in range(3)]
    for number, job_id in enumerate(jobs):
        world.write(
            job_id,
            ev.JobAssigned(worker_id="w1", offer_id=f"m{number}", slot=0, device="d", bytes=100, batch="1-0"),
        )
    slot = world.state.workers["w1"].slots[0]
    assert (slot.deck, slot.deck_bytes, slot.running) == (jobs[0], 300, None)

    for job_id in jobs[:2]:
        world.start(job_id)
    assert (slot.deck, slot.deck_bytes, slot.running, slot.running_bytes) == (jobs[2], 100, jobs[0], 200)
    assert dump(load(dump(world.state))) == dump(world.state)

    world.decline(jobs[2])
    world.complete(jobs[0])
    assert (slot.deck, slot.deck_bytes, slot.running, slot.running_bytes) == (None, 0, jobs[1], 100)
    assert slot.free_at_ms > 0
    world.complete(jobs[1])
    assert (slot.running, slot.held_bytes, slot.free_at_ms) == (None, 0, 0)

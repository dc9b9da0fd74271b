"""What jobs were seen to need is reserved for the next ones of their kind, by everybody alike who folds the log."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from services.scheduler.fold import books
from services.scheduler.fold.peaks import MOST_BUCKETS, MOST_MODELS, Peaks
from services.scheduler.fold.snapshot import dump, load
from tests.scheduler.world import World


def told(world: World, needed_bytes: int, source: ev.ProfileSource = "drift", bucket: str | None = "n=1") -> None:
    world.write("w1", ev.ModelProfiled(model="echo@1", bucket=bucket, bytes=needed_bytes, source=source))


def test_a_raised_profile_counts_for_jobs_that_wait_and_for_those_that_come() -> None:
    world = World()
    world.worker(slot_bytes=100)
    running, waiting = (world.submit(vram_bytes=10, bucket="n=1") for _ in range(2))
    world.turn()
    world.start(running)

    told(world, 40)
    other, later = world.submit(vram_bytes=10, bucket="n=2"), world.submit(vram_bytes=10, bucket="n=1")
    larger = world.submit(vram_bytes=50, bucket="n=1")
    world.fail(running, delay_ms=1)

    found = {job_id: world.job(job_id).bytes for job_id in (running, waiting, other, later, larger)}
    assert found == {running: 40, waiting: 40, other: 10, later: 40, larger: 50}


def test_who_waits_with_a_raised_profile_has_lost_nothing_and_goes_where_it_fits() -> None:
    world = World()
    world.worker("small", slot_bytes=30)
    jobs = [world.submit("t_a", vram_bytes=10, bucket="n=1") for _ in range(3)]
    jobs.append(world.submit("t_b", vram_bytes=35, bucket="n=1"))  # it does not fit, and its tenant is owed the more
    for job_id in jobs[:2]:
        world.turn()
        world.start(job_id)
        world.complete(job_id, gpu_ms=40_000)
    late = world.submit("t_a", vram_bytes=10, bucket="n=1", start_by_ms=600_000)
    before = orjson.loads(dump(world.state))["policy"]

    told(world, 40)
    assert orjson.loads(dump(world.state))["policy"] == before
    assert load(dump(world.state)).choose(world.now_ms, 9) == world.state.choose(world.now_ms, 9)
    world.turn()
    assert world.on_decks() == []

    world.worker("large", slots=4, slot_bytes=160, device="gpu-0")
    world.turn()
    assert {job_id: world.offer_of(job_id).bytes for job_id in world.on_decks()} == dict.fromkeys([*jobs[2:], late], 40)


def test_an_offer_that_is_taken_back_reserves_what_is_known_by_then() -> None:
    world = World()
    world.worker(slot_bytes=100)
    job_id = world.submit(vram_bytes=10, bucket="n=1")
    world.turn()
    told(world, 40)
    assert (world.job(job_id).bytes, world.offer_of(job_id).bytes) == (10, 10)
    world.decline(job_id)
    assert world.job(job_id).bytes == 40


def test_one_entry_changes_so_many_jobs_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "MOST_RAISED", 2)
    world = World()
    jobs = [world.submit(vram_bytes=10, bucket="n=1") for _ in range(5)]
    told(world, 40)
    assert [world.job(job_id).bytes for job_id in jobs] == [40, 40, 10, 10, 10]
    told(world, 40)
    assert [world.job(job_id).bytes for job_id in jobs] == [40, 40, 40, 40, 10]


@pytest.mark.parametrize("again", ["handed_back", "retried", "due"])
def test_a_job_that_becomes_eligible_again_reserves_what_is_known_by_then(again: str) -> None:
    world = World()
    world.worker(slot_bytes=100)
    job_id = world.submit(vram_bytes=10, bucket="n=1", run_at_ms=world.now_ms + 5 if again == "due" else None)
    if again == "due":
        told(world, 40)
        world.now_ms += 10
        world.turn()
    else:
        world.turn()
        world.start(job_id)
        told(world, 40)
    if again == "handed_back":
        world.write(job_id, ev.JobQueued(reason="handed_back", attempt=0), fence=1)
    elif again == "retried":
        world.fail(job_id)
        world.write(job_id, ev.JobRetried(by="t", from_status="failed", run=2, max_attempts=4))

    assert world.job(job_id).bytes == 40


def test_an_offer_reserves_the_raised_bytes_and_a_device_too_small_for_them_gets_none() -> None:
    world = World()
    world.worker("w1", slot_bytes=30)
    told(world, 40)
    job_id = world.submit(vram_bytes=10, bucket="n=1")
    world.turn()
    assert world.on_decks() == []

    world.worker("w2", slot_bytes=50)
    world.turn()
    assert (world.offer_of(job_id).worker_id, world.offer_of(job_id).bytes) == ("w2", 40)


def test_an_audit_takes_back_what_was_told_before_and_a_snapshot_keeps_the_rest() -> None:
    world = World()
    told(world, 40)
    world.write("w1", ev.ModelProfiled(model="other@1", bytes=7, source="provisional"))
    told(world, 99, source="audit", bucket=None)
    resumed = load(dump(world.state))

    assert resumed.peaks.snapshot() == world.state.peaks.snapshot() == {"other@1": {"": 7}}
    assert world.job(world.submit(vram_bytes=10, bucket="n=1")).bytes == 10


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n=1", "n=2"]), st.integers(0, 99)), max_size=30)
)
def test_the_most_that_was_told_of_a_bucket_counts(said: list[tuple[str, str, int]]) -> None:
    peaks, restored = Peaks(), Peaks()
    for model, bucket, needed_bytes in said:
        peaks.learn(model, bucket, needed_bytes)
    restored.restore(peaks.snapshot())

    for model, bucket, _ in said:
        most = max(needed for name, of, needed in said if (name, of) == (model, bucket))
        assert peaks.bytes(model, bucket) >= most
        assert restored.bytes(model, bucket) == peaks.bytes(model, bucket)


def test_whatever_is_told_the_memory_of_it_is_bounded() -> None:
    peaks = Peaks()
    for number in range(MOST_BUCKETS + 10):
        peaks.learn("a@1", f"n={number}", number + 1)
    for number in range(MOST_MODELS):
        peaks.learn(f"m{number}@1", "", 5)

    assert len(peaks.snapshot()) == MOST_MODELS
    assert peaks.bytes("a@1", "n=1") == 0  # the first that was told made room
    peaks.learn("m1@1", "n=1", 3)
    for number in range(MOST_BUCKETS + 10):
        peaks.learn("m1@1", f"n={number}", number + 1)
    assert len(peaks.snapshot()["m1@1"]) <= MOST_BUCKETS
    assert peaks.bytes("m1@1", f"n={MOST_BUCKETS + 9}") == MOST_BUCKETS + 10  # of all later buckets the most

"""What tenants used follows from the log alone, and device time is what the scheduler charges for it."""

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import events as ev
from contracts.usage.fold import Owner, UsageFold, learn, read_flights, write_flights
from contracts.usage.rows import METRICS, Key, add, empty
from contracts.wire import Entry
from tests.scheduler.test_fold import STEPS, play
from tests.scheduler.world import World
from tests.usage.whole_log import fold_all

DAY_MS = 86_400_000


def of(world_or_entries: World | Sequence[Entry], tenant: str = "t_a") -> dict[str, int]:
    """All that a tenant used, without the zeros."""
    entries = world_or_entries.entries if isinstance(world_or_entries, World) else world_or_entries
    total = empty()
    add(total, (row for key, row in fold_all(entries).rows.items() if key.tenant_id == tenant))
    return {name: number for name, number in zip(METRICS, total, strict=True) if number}


HAPPENS = (
    ["submit"] * 5 + ["turn"] * 3 + ["start"] * 4 + ["finish"] * 3
    + ["fail", "retry", "cancel", "cancel", "hand_back", "hand_back", "lose", "join", "wait", "again"]
)  # fmt: skip


def test_device_time_is_what_the_scheduler_charges() -> None:
    """Batches share it, what is handed back or lost is free, and nothing counts twice: one definition for both.

    Of 40 histories, up to every entry: however each attempt goes on.
    """
    seen = Counter[str]()
    for seed in range(40):
        chance = random.Random(seed)
        world = play([(chance.choice(HAPPENS), chance.randrange(12)) for _ in range(120)])
        charged = Counter(world.state.budgets.used_ms)
        for job in world.state.jobs.values():
            charged[job.tenant_id] -= job.charged_ms if job.is_charged else 0  # of what is under way still
        used = Counter({tenant: of(world, tenant).get("gpuMs", 0) for tenant in ("t_0", "t_1", "t_2")})
        assert +used == +charged, seed
        seen.update(entry.type for entry in world.entries)
        seen["shared"] += sum(b'"batchSize":' in entry.data for entry in world.entries)
    assert min(seen[name] for name in ("job.lease_lost", "job.queued", "job.cancelled", "job.retried", "shared")) > 20


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_any_cut_gives_the_same_rows(steps: list[tuple[str, int]], seed: int) -> None:
    """Replay in one go, or in pieces by processes that know nothing but what the one before wrote down."""
    entries, chance = play(steps).entries, random.Random(seed)
    whole, fold, rows, owners = fold_all(entries), UsageFold(), dict[Key, list[int]](), dict[str, Owner]()

    for entry in entries:
        fold.apply(entry, owners.get(entry.subject))
        learn(owners, entry)
        if chance.random() < 0.2:
            _collect(rows, fold)
            fold = UsageFold(fold.position, read_flights(write_flights(fold.flights)))
    _collect(rows, fold)

    assert rows == whole.rows
    assert write_flights(fold.flights) == write_flights(whole.flights)


def _collect(rows: dict[Key, list[int]], fold: UsageFold) -> None:
    for key, row in fold.take_rows().items():
        add(rows.setdefault(key, empty()), [row])


def test_members_of_a_batch_share_its_time_and_its_load() -> None:
    world = World()
    world.worker()
    jobs = [world.submit(max_batch=3, bucket="b") for _ in range(3)]
    world.turn()
    for job_id in jobs:
        world.start(job_id)
        world.write(job_id, ev.ModelLoadCompleted(model="echo@1", ms=900), fence=1)
    world.now_ms += 6_000
    for job_id in jobs:
        world.write(job_id, ev.JobCancelled(how="killed"), fence=1)

    assert of(world) == {"jobsCreated": 3, "jobsCancelled": 3, "gpuMs": 6_000, "loadMs": 900}


def test_a_batch_that_ran_too_long_is_charged_once_for_all() -> None:
    """The scheduler ends each member and says no time: it must be a member's share, not all of the pass."""
    world = World()
    world.worker()
    jobs = [world.submit(max_batch=3, bucket="b") for _ in range(3)]
    world.turn()
    for job_id in jobs:
        world.start(job_id)
    world.now_ms += 6_000
    for job_id in jobs:
        world.fail(job_id)

    assert of(world)["gpuMs"] == world.state.budgets.used_ms["t_a"] == 6_000


def test_a_run_over_midnight_belongs_to_the_day_it_ended() -> None:
    world = World()
    world.worker()
    job_id = world.running()
    world.now_ms = DAY_MS + 5
    world.complete(job_id, gpu_ms=700)

    rows = {key.day: dict(zip(METRICS, row, strict=True)) for key, row in fold_all(world.entries).rows.items()}
    assert (rows[0]["jobsCreated"], rows[0]["gpuMs"]) == (1, 0)
    assert (rows[1]["jobsCompleted"], rows[1]["gpuMs"]) == (1, 700)


def test_a_lost_worker_costs_nothing_and_a_late_write_counts_nothing_twice() -> None:
    """What a fenced worker wrote is refused; all that may be in the log of it is that it was."""
    world = World()
    world.worker()
    job_id = world.running()
    world.write(job_id, ev.ModelLoadCompleted(model="echo@1", ms=400), ev.JobDeviceReleased(gpu_ms=5_000), fence=1)
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    lost = ev.JobAttemptFailed(error=error, attempt=1, will_retry=True)
    again = ev.JobQueued(reason="lease_lost", attempt=1)
    world.write(job_id, ev.JobLeaseLost(worker_id="w1", attempt=1), lost, again, fence=1)
    world.write(job_id, ev.JobEventRejected(offending_type="job.completed", why="fenced"), fence=1)
    world.turn()
    world.start(job_id)
    world.complete(job_id, gpu_ms=300)
    world.write(job_id, ev.JobEventRejected(offending_type="job.completed", why="fenced"), fence=2)

    assert of(world) == {"jobsCreated": 1, "jobsCompleted": 1, "gpuMs": 300}


def test_what_is_not_the_tenants_doing_is_free() -> None:
    """A store of files that was away, a hand-back: what becomes of the job then must not be charged for them."""
    world = World()
    world.worker(slots=2)
    failed, given_back = world.running(), world.running()
    world.now_ms += 500
    error = ev.ErrorFacts(code="artifact_upload_failed", retryable=True)
    again = ev.JobAttemptFailed(error=error, attempt=1, will_retry=True, gpu_ms=800)
    world.write(failed, ev.JobDeviceReleased(gpu_ms=800), again, ev.JobCancelled(how="queued"), fence=1)
    world.write(given_back, ev.JobQueued(reason="handed_back", attempt=0), ev.JobCancelled(how="queued"), fence=1)

    assert of(world) == {"jobsCreated": 2, "jobsCancelled": 2}


def test_files_and_deliveries_are_counted_also_when_the_job_is_forgotten() -> None:
    world = World()
    world.worker()
    job_id = world.running()
    stored = ev.ArtifactRef(
        id="art_1", kind="image", variant="original", mime="image/png", bytes=4_096, sha256="0", path="/x",
        expires_at_ms=1,
    )  # fmt: skip
    world.write(job_id, ev.ArtifactUploaded(artifact=stored, ms=3), fence=1)
    world.complete(job_id, gpu_ms=10)
    world.write(job_id, ev.JobForgotten(), fence=1)
    told = ev.WebhookAttempted(
        delivery_id="dlv_1", job_id=job_id, event_type="job.completed", attempt=1, outcome="status_500", status=500,
        next_at_ms=7, tenant_id="t_a", model="echo@1",
    )  # fmt: skip
    world.write("dlv_1", told, told.model_copy(update={"attempt": 2, "status": 204, "next_at_ms": None}))
    world.write("dlv_1", told.model_copy(update={"tenant_id": None, "model": None}))  # of an older version

    assert of(world) == {
        "jobsCreated": 1, "jobsCompleted": 1, "gpuMs": 10, "artifactBytes": 4_096,
        "deliveries": 1, "deliveryAttempts": 2,
    }  # fmt: skip
    assert {key.model for key in fold_all(world.entries).rows} == {"echo@1"}

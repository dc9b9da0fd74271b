"""External limits: tokens, refusals of a provider, and who waits behind them, on a pool without a store."""

from contracts import events as ev
from contracts.job import JobStatus
from services.scheduler.fold.job_folds import LONGEST_REFUSAL_MS
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.turns import next_due_ms
from services.scheduler.verify import verify
from tests.scheduler.world import RULES, World

LIMIT = {"moderation": ev.ResourceRule(rate=2, window_ms=1_000)}


def limited_world(slots: int = 4) -> World:
    world = World()
    world.worker(slots=slots)
    world.configured(resources=LIMIT)
    return world


def grant(world: World, n: int) -> None:
    world.turn(limits=[ev.ResourceGranted(resource="moderation", n=n)])


def refuse(world: World, job_id: str, resource: str | None = "moderation", retry_after_ms: int | None = None) -> None:
    job = world.job(job_id)
    event = ev.JobQueued(
        reason="rate_limited", attempt=job.attempt - 1, resource=resource, retry_after_ms=retry_after_ms
    )
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=700), event, fence=job.fence)


def test_a_job_that_draws_on_a_limit_waits_for_a_token_and_holds_up_nobody() -> None:
    """Field case 25: a limit holds the jobs that draw on it, not the queue."""
    world = limited_world()
    drawing = [world.submit(resources={"moderation": 1}) for _ in range(3)]
    free = world.submit()
    world.turns()
    assert world.on_decks() == [free]
    assert world.state.wanted_tokens() == {"moderation": 2}  # never more than the rate, however many wait

    grant(world, 2)
    world.turns()

    assert sorted(world.on_decks()) == sorted([free, *drawing[:2]])
    assert world.state.limits.known["moderation"].tokens == 0
    assert verify(world.entries) == []


def test_a_token_comes_back_when_the_offer_comes_to_nothing_and_is_spent_by_a_start() -> None:
    world = limited_world()
    first, second = world.submit(resources={"moderation": 1}), world.submit(resources={"moderation": 1})
    grant(world, 2)
    world.turns()

    world.decline(first)
    world.start(second)

    assert world.state.limits.known["moderation"].tokens == 1
    world.cancel(first)
    assert world.state.limits.known["moderation"].tokens == 1


def test_a_token_that_was_not_used_in_time_is_dropped_before_anything_is_chosen() -> None:
    """Or after a quiet phase a window would see it beside all that the rate gives."""
    world = limited_world()
    first = world.submit(resources={"moderation": 1})
    late_ms = world.now_ms + 80
    world.turn(limits=[ev.ResourceGranted(resource="moderation", n=2, until_ms=late_ms)])
    world.turns()
    world.decline(first)  # its token comes back, for as long as it would have held
    world.cancel(first)
    assert world.state.limits.known["moderation"].lots == [[late_ms, 1], [late_ms, 1]]

    world.now_ms = late_ms
    second = world.submit(resources={"moderation": 1})
    world.turns()

    assert [entry.raw_data() for entry in world.entries if entry.type == "resource.expired"] == [
        {"resource": "moderation", "n": 2}
    ]
    assert world.on_decks() == []
    assert world.state.wanted_tokens() == {"moderation": 1}
    world.turn(limits=[ev.ResourceGranted(resource="moderation", n=1, until_ms=late_ms + 80)])
    world.turns()
    assert world.on_decks() == [second]
    assert world.state.limits.known["moderation"].expired == 2
    assert dump(load(dump(world.state))) == dump(world.state)
    assert verify(world.entries) == []


def test_jobs_behind_a_limit_keep_band_and_order_when_tokens_come() -> None:
    """Field case 13: ten low jobs, then three urgent ones: the urgent ones come first, each group in its order."""
    world = limited_world()
    low = [world.submit(priority="low", resources={"moderation": 1}) for _ in range(10)]
    urgent = [world.submit(priority="urgent", resources={"moderation": 1}) for _ in range(3)]
    started: list[str] = []
    while len(started) < 13:
        grant(world, 1)
        world.turns()
        (job_id,) = world.on_decks()
        world.start(job_id)
        if len(started) == 5:  # a provider's refusal in between costs nobody its place
            refuse(world, job_id)
            world.turn(limits=[ev.ResourcePaused(resource="moderation", until_ms=world.now_ms + 500)])
            world.now_ms += 1_000
            grant(world, 1)
            world.turns()
            assert world.on_decks() == [job_id]
            world.start(job_id)
        started.append(job_id)
        world.complete(job_id)
        world.now_ms += 500

    assert started == [*urgent, *low]


def test_a_providers_refusal_closes_the_limit_at_once_costs_no_attempt_and_no_device_time() -> None:
    """Field case 34: a 429 pauses the limit for everybody."""
    world = limited_world()
    jobs = [world.submit(resources={"moderation": 1}) for _ in range(3)]
    grant(world, 2)
    world.turns()
    for job_id in jobs[:2]:
        world.start(job_id)
    grant(world, 1)

    refuse(world, jobs[0], retry_after_ms=3_000)

    job, limit = world.job(jobs[0]), world.state.limits.known["moderation"]
    assert (job.status, job.attempt, job.not_before_ms) == (JobStatus.QUEUED, 0, None)
    assert (limit.tokens, limit.refused_until_ms) == (0, world.now_ms + 3_000)
    assert world.state.wanted_tokens() == {}
    assert world.turn() == []
    until_ms = world.now_ms + 3_000
    world.turn(limits=[ev.ResourcePaused(resource="moderation", until_ms=until_ms)])
    assert (limit.paused_until_ms, limit.refused_until_ms) == (until_ms, 0)
    assert world.state.budgets.used_ms == {"t_a": world.job(jobs[1]).charged_ms}


def test_a_limit_that_nobody_declared_delays_only_the_job_and_ever_longer() -> None:
    """Field cases 30 and 31: nothing said, or 0, still leaves a second; the longest wait is bounded."""
    world = World()
    world.worker()
    job_id = world.submit(resources={"unknown": 1})
    waits = []
    for said_ms in (None, 0, 0, 999_999_000):
        world.turns()
        world.start(job_id)
        refuse(world, job_id, "unknown", said_ms)
        waits.append((world.job(job_id).not_before_ms or 0) - world.now_ms)
        world.now_ms += waits[-1]

    assert waits == [1_000, 2_000, 4_000, LONGEST_REFUSAL_MS]


def test_a_job_that_is_refused_for_too_long_fails_with_the_reason() -> None:
    """Field case 34: a limited job ends after a total deadline, not never."""
    world = World()
    world.worker()
    job_id = world.submit()
    began_ms = world.now_ms
    while world.job(job_id).status is not JobStatus.FAILED:
        world.turns()
        if world.on_decks():
            world.start(job_id)
            refuse(world, job_id, None)
        world.now_ms = next_due_ms(world.state, RULES, world.now_ms) or world.now_ms
        assert world.now_ms - began_ms <= RULES.rate_limited_ms + LONGEST_REFUSAL_MS

    failed = world.entries[-1].event()
    assert isinstance(failed, ev.JobFailed)
    assert (failed.error.code, failed.attempts, failed.dead_lettered) == ("rate_limited", 0, True)
    assert world.now_ms - began_ms >= RULES.rate_limited_ms


def test_a_burst_leaves_no_debt_behind() -> None:
    """Field case 27: what waits is counted, not remembered: once the burst is through, a new job starts at once."""
    world = limited_world()
    for _ in range(6):
        world.submit(resources={"moderation": 1})
    for _ in range(3):
        grant(world, 2)
        world.turns()
        for job_id in world.on_decks():
            world.start(job_id)
            world.complete(job_id)
        world.now_ms += 1_000
    job_id = world.submit(resources={"moderation": 1})
    grant(world, 1)
    world.turn()

    assert world.on_decks() == [job_id]


def test_what_waits_behind_a_limit_is_never_lost() -> None:
    """Field case 26: waiting, running and ended make all jobs, at every moment."""
    world = limited_world()
    jobs = [world.submit(resources={"moderation": 1}) for _ in range(20)]
    for _ in range(10):
        grant(world, 2)
        world.turns()
        for job_id in world.on_decks():
            world.start(job_id)
            world.complete(job_id)
        assert set(world.state.jobs) == set(jobs)
        done = [job_id for job_id in jobs if world.job(job_id).status is JobStatus.COMPLETED]
        assert len(done) + world.state.policy.waiting_count == len(jobs)
        world.now_ms += 1_000

    assert {job.status for job in world.state.jobs.values()} == {JobStatus.COMPLETED}

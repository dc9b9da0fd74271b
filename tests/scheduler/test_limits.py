"""Limits, pauses, budgets and long runs in the fold and in the turns, on a pool without a store."""

from contracts import events as ev
from contracts.job import JobStatus
from contracts.policy import SchedulingPolicy
from contracts.tenant import Configuration, Tenant
from services.scheduler.copying import Copying
from services.scheduler.fold.budgets import DAY_MS
from services.scheduler.fold.job_folds import LONGEST_REFUSAL_MS
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.turns import next_due_ms
from services.scheduler.verify import verify
from tests.scheduler.world import RULES, World

LIMIT = {"moderation": ev.ResourceRule(rate=2, window_ms=1_000)}


def applied(world: World, **facts: object) -> None:
    world.turn(policy=ev.PolicyApplied(position="9-0", **facts))  # type: ignore[arg-type]


def limited_world(slots: int = 4) -> World:
    world = World()
    world.worker(slots=slots)
    applied(world, resources=LIMIT)
    return world


def grant(world: World, n: int) -> None:
    world.turn(limits=[ev.ResourceGranted(resource="moderation", n=n)])


def refuse(world: World, job_id: str, resource: str | None = "moderation", retry_after_ms: int | None = None) -> None:
    job = world.job(job_id)
    event = ev.JobQueued(
        reason="rate_limited", attempt=job.attempt - 1, resource=resource, retry_after_ms=retry_after_ms
    )
    world.write(job_id, ev.JobDeviceReleased(gpu_ms=700), event, fence=job.fence)


# -- external limits ------------------------------------------------------------------------------------------------


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


# -- pauses and budgets ---------------------------------------------------------------------------------------------


def test_a_pause_takes_back_what_lies_on_decks_and_lets_run_what_runs() -> None:
    for facts in (
        {"paused": True},
        {"paused_models": ("echo",)},
        {"weights": {"t_a": 3.0}, "tenants": {"t_a": ev.TenantRule(paused=True)}},
    ):
        world = World()
        world.worker()
        running, waiting = world.submit(), world.submit()
        world.turn()
        world.start(running)
        world.turn()
        assert world.on_decks() == [waiting]

        applied(world, **facts)
        world.turns()

        assert world.on_decks() == []
        assert world.types(waiting)[-1] == "job.unassigned"
        assert world.job(waiting).not_before_ms is None
        assert world.job(running).status is JobStatus.IN_PROGRESS
        assert dump(load(dump(world.state))) == dump(world.state)
        applied(world, paused=False, paused_models=(), tenants={"t_a": ev.TenantRule()})
        world.turns()
        assert world.on_decks() == [waiting]
        assert verify(world.entries) == []


def test_a_budget_of_the_day_parks_its_tenant_is_told_once_and_is_whole_again_after_midnight() -> None:
    world = World()
    world.worker(slots=2)
    applied(world, weights={"t_a": 3.0}, tenants={"t_a": ev.TenantRule(gpu_seconds_per_day=15)})
    first = world.submit()
    world.turns()
    world.start(first)
    second, other = world.submit(), world.submit("t_b")
    world.turns()
    world.start(second)
    third = world.submit()
    world.turns()
    told = [entry.event() for entry in world.entries if entry.type == "tenant.budget_exhausted"]
    assert [(event.used_gpu_seconds, event.limit_gpu_seconds) for event in told] == [(20, 15)]  # type: ignore[union-attr]
    assert world.on_decks() == [other]

    world.complete(first, gpu_ms=3_000)  # a true-up frees budget, too
    world.turns()
    assert third in world.on_decks()
    world.decline(third, "overtaken")
    world.complete(second, gpu_ms=30_000)
    world.turns()
    assert third not in world.on_decks()

    midnight_ms = (world.now_ms // DAY_MS + 1) * DAY_MS
    assert world.state.budgets.renews_at_ms == midnight_ms
    world.now_ms = midnight_ms
    world.turns()

    assert [entry.type for entry in world.entries].count("budgets.renewed") == 1
    assert third in world.on_decks()
    assert verify(world.entries) == []


# -- long runs and faults -------------------------------------------------------------------------------------------


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


# -- copying --------------------------------------------------------------------------------------------------------


def test_the_leader_copies_every_knob_rule_pause_and_limit_once() -> None:
    world = World()
    limits = ev.TenantLimits(concurrency=2, gpu_seconds_per_day=60)
    configuration = Configuration(
        position="7-0",
        tenants={"t_paid": Tenant("t_paid", "enterprise", 0.5, limits, paused=True), "t_plain": Tenant("t_plain")},
        policies={"default": ev.PolicyFacts(lead_s=5, tier_weights={"enterprise": 4})},
        paused_pools=frozenset({"default"}),
        paused_models=frozenset({"echo"}),
        resources=LIMIT,
    )
    copying = Copying("default", SchedulingPolicy(bypass_s=30))

    event = copying.changed(configuration, world.state)
    assert event is not None
    assert (event.weights, event.paused, event.paused_models) == ({"t_paid": 2.0}, True, ("echo",))
    assert event.tenants == {
        "t_paid": ev.TenantRule(tier="enterprise", concurrency=2, gpu_seconds_per_day=60, paused=True)
    }
    assert event.policy is not None
    assert (event.policy.lead_s, event.policy.bypass_s) == (5, 30)
    world.turn(policy=event)

    assert copying.changed(configuration, world.state) is None
    assert Copying("default", SchedulingPolicy(bypass_s=30)).changed(configuration, world.state) is None


def test_an_installation_that_configures_nothing_copies_nothing() -> None:
    assert Copying("default", SchedulingPolicy()).changed(Configuration(position="1-0"), World().state) is None

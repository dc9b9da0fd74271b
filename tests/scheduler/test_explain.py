"""Why a job waits: each reason in the words and with the code that the API promises, and nothing of other tenants."""

import pytest

from contracts import events as ev
from contracts import questions as q
from services.scheduler.explain.oracle import Oracle
from tests.scheduler.world import World

GIB = 1 << 30


@pytest.fixture
def world() -> World:
    return World()


def why(world: World, job_id: str, tenant: str = "t_a") -> q.Explanation:
    answer = Oracle(world.state).answer(q.Question("why", job_id, tenant), world.now_ms)
    assert isinstance(answer, q.Explanation)
    return answer


def codes(world: World, job_id: str, tenant: str = "t_a") -> list[str]:
    return [reason.code for reason in why(world, job_id, tenant).reasons]


def test_a_job_that_is_about_to_be_offered_has_no_reason_to_wait_and_starts_at_once(world: World) -> None:
    world.worker()
    job_id = world.submit()

    told = why(world, job_id)

    assert (told.reasons, told.place.ahead, told.place.eta_ms) == ((), 0, 0)
    assert [(spot.worker_id, spot.slot, spot.free_in_ms) for spot in told.would_run_on] == [("w1", 0, 0)]


def test_a_job_of_somebody_else_and_an_unknown_one_are_answered_alike(world: World) -> None:
    job_id = world.submit("t_a")

    assert why(world, job_id, "t_b") == why(world, "job_none", "t_b") == q.Explanation()


def test_a_job_that_runs_or_has_ended_does_not_wait(world: World) -> None:
    world.worker()
    job_id = world.submit()
    world.turns()
    world.start(job_id)
    assert why(world, job_id) == q.Explanation()
    world.complete(job_id)
    assert why(world, job_id) == q.Explanation()


def test_a_job_that_fits_no_gpu_says_so_and_holds_up_nobody(world: World) -> None:
    """Field case 18: the reason is shown, and what would have to change; those behind it go on."""
    world.worker(slot_bytes=24 * GIB)
    huge = world.submit(vram_bytes=200 * GIB)
    small = world.submit(vram_bytes=GIB)

    told = why(world, huge)

    assert [reason.code for reason in told.reasons] == ["insufficient_vram"]
    assert "needs 200.0 GiB; no GPU has enough memory" in told.reasons[0].detail
    assert "24.0 GiB" in told.reasons[0].detail
    assert told.place.eta_ms is None
    assert told.would_run_on == ()
    assert why(world, small).place == q.JobPlace(0, 0, why(world, small).place.basis)


def test_a_job_that_fits_only_without_what_others_hold_says_how_much_is_free(world: World) -> None:
    """Field case 70: the reason is there while it waits, and gone with the other program."""
    world.worker(slot_bytes=24 * GIB)
    large = world.submit(vram_bytes=20 * GIB)

    def free(size: int) -> None:
        info = ev.SlotInfo(index=0, device="GPU-1", kind="cuda", bytes=size, total_bytes=24 * GIB)
        world.write("w1", ev.WorkerChanged(worker_id="w1", slots=(info,)))

    free(11 * GIB)
    (reason,) = why(world, large).reasons
    assert reason.code == "insufficient_vram"
    assert reason.detail.startswith("gpu memory: 11.0 GiB free of 24.0 GiB, 20.0 GiB needed.")
    free(23 * GIB)
    assert why(world, large).reasons == ()
    world.turns()
    assert world.job(large).offers


def test_a_job_that_fits_only_when_others_are_gone_says_what_it_waits_for(world: World) -> None:
    world.worker(slots=2, slot_bytes=24 * GIB, device="gpu")
    world.submit(vram_bytes=10 * GIB)
    world.turns()
    large = world.submit(vram_bytes=20 * GIB)

    assert "insufficient_vram" in codes(world, large)


def test_without_a_worker_for_its_model_it_waits_for_one(world: World) -> None:
    job_id = world.submit()
    assert "The pool has no worker for echo@1" in why(world, job_id).reasons[0].detail
    world.worker(models=("other",))
    told = why(world, job_id)

    assert [reason.code for reason in told.reasons] == ["no_worker_with_model"]
    assert "None of the 1 workers of the pool serves echo@1" in told.reasons[0].detail
    assert told.place.eta_ms is None


def test_a_scheduled_job_waits_for_its_time(world: World) -> None:
    world.worker()
    job_id = world.submit(run_at_ms=world.now_ms + 60_000)

    told = why(world, job_id)

    assert [(reason.code, reason.since_ms) for reason in told.reasons] == [("not_before", world.now_ms)]
    assert told.place.eta_ms == 60_000


def test_a_failed_attempt_waits_for_its_backoff(world: World) -> None:
    world.worker()
    job_id = world.submit()
    world.turns()
    world.start(job_id)
    world.fail(job_id, delay_ms=5_000)

    told = why(world, job_id)

    assert [reason.code for reason in told.reasons] == ["backoff"]
    assert "Attempt 1 of 3 failed" in told.reasons[0].detail
    assert told.place.eta_ms == 5_000


def test_a_job_that_is_to_have_a_gpu_for_itself_says_so_and_why(world: World) -> None:
    world.worker(slots=2, slot_bytes=24 * GIB, device="gpu")
    world.submit(vram_bytes=10 * GIB)
    world.turns()
    failed = world.submit(vram_bytes=GIB)
    world.turns()
    unknown = world.submit()
    world.start(failed)
    world.fail(failed, delay_ms=5_000, alone=True)

    assert "on a GPU for itself" in why(world, failed).reasons[0].detail
    world.now_ms += 5_000
    world.turns()
    details = {job_id: why(world, job_id).reasons[0].detail for job_id in (failed, unknown)}
    assert "It gets a GPU for itself: it ran out of memory" in details[failed]
    assert "It gets a GPU for itself: nobody has measured what echo@1 needs" in details[unknown]
    assert {why(world, job_id).reasons[0].code for job_id in details} == {"insufficient_vram"}


def test_a_declined_offer_waits_too_and_says_that_no_attempt_was_used(world: World) -> None:
    world.worker()
    job_id = world.submit()
    world.turns()
    world.decline(job_id)

    assert codes(world, job_id) == ["backoff"]
    assert "no attempt was used" in why(world, job_id).reasons[0].detail


def test_behind_more_pressing_and_earlier_jobs_of_its_own_tenant(world: World) -> None:
    earlier = world.submit()
    job_id = world.submit()
    later = world.submit()
    urgent = world.submit(priority="urgent")
    world.worker(slots=1)

    told = why(world, job_id)

    assert [reason.code for reason in told.reasons] == ["behind_higher_priority", "fair_share"]
    assert "1 job of this tenant with a higher priority" in told.reasons[0].detail
    assert "Before it go 1 of this tenant that came earlier." in told.reasons[1].detail
    places = [why(world, each).place.ahead for each in (urgent, earlier, job_id, later)]
    assert places == [0, 1, 2, 3]


def test_other_tenants_are_counted_and_not_named(world: World) -> None:
    for _ in range(5):
        world.submit("t_secret")
    world.worker()
    world.turns()
    job_id = world.submit("t_a")

    told = why(world, job_id)

    assert [reason.code for reason in told.reasons] == ["fair_share"]
    assert "t_secret" not in str(told)
    assert told.place.ahead == 1, "the one on deck: a tenant that comes late need not wait for the flood"


def test_the_next_one_on_a_busy_slot_hears_when_it_should_be_free(world: World) -> None:
    world.worker()
    world.turns()
    first = world.submit()
    world.turns()
    world.start(first)
    world.now_ms += 2_000
    job_id = world.submit()

    told = why(world, job_id)

    assert [reason.code for reason in told.reasons] == ["fair_share"]
    assert told.place.ahead == 0
    assert told.place.eta_ms == 8_000
    assert "nothing of echo@1 ran yet" in str(told.place.basis)


def test_a_place_is_the_same_without_its_reasons(world: World) -> None:
    world.worker()
    for _ in range(3):
        job_id = world.submit()

    assert Oracle(world.state).answer(q.Question("place", job_id, "t_a"), world.now_ms) == why(world, job_id).place


def test_a_waiting_pool_wants_workers_also_from_none_at_all_and_no_more_than_could_work(world: World) -> None:
    """Field case 24: the age of the oldest falls to 0 when nothing waits."""

    def told(target_ms: int = 60_000) -> q.Backlog:
        answer = Oracle(world.state).answer(q.Question("backlog", target_ms=target_ms), world.now_ms)
        assert isinstance(answer, q.Backlog)
        return answer

    assert told() == q.Backlog()
    jobs = [world.submit() for _ in range(12)]
    world.now_ms += 3_000
    assert told() == q.Backlog(12, 120_000, 3_000, 2)
    assert told(1_000).desired_workers == 12
    world.worker(slots=2)
    assert told(1_000).desired_workers == 6
    for job_id in jobs:
        world.cancel(job_id)
    assert told() == q.Backlog()


def test_a_job_that_runs_for_long_is_told_until_it_ends(world: World) -> None:
    """Field case 57: the age of the longest running attempt, so that somebody can be told about a job that hangs."""

    def longest_ms() -> int:
        answer = Oracle(world.state).answer(q.Question("backlog", target_ms=60_000), world.now_ms)
        assert isinstance(answer, q.Backlog)
        return answer.longest_ms

    world.worker(slots=2)
    assert longest_ms() == 0
    jobs = [world.submit() for _ in range(2)]
    world.turns()
    for job_id in jobs:
        world.start(job_id)
        world.now_ms += 5_000
    assert longest_ms() == 10_000
    world.complete(jobs[0])
    assert longest_ms() == 5_000


def limit(world: World, tenant: str = "t_a", **rule: object) -> None:
    facts = ev.TenantRule.model_validate(rule)
    world.write("scheduler", ev.PolicyApplied(position="1-0", weights={tenant: 3.0}, tenants={tenant: facts}))


def test_what_an_operator_paused_says_so_and_nobody_can_say_when(world: World) -> None:
    world.worker()
    job_id = world.submit()
    paused = ev.PolicyApplied(position="1-0", paused=True, paused_models=("echo",))
    world.write("scheduler", paused)
    limit(world, paused=True)

    told = why(world, job_id)
    asked = q.Question("backlog", target_ms=1_000)

    assert [reason.code for reason in told.reasons][:3] == ["pool_paused", "tenant_paused", "model_paused"]
    assert all("An operator must resume it." in reason.detail for reason in told.reasons[:3])
    assert [reason.since_ms for reason in told.reasons[:3]] == [world.now_ms] * 3
    assert told.place.eta_ms is None
    assert Oracle(world.state).answer(asked, world.now_ms) == q.Backlog(), "more workers would change nothing"


def test_a_used_budget_waits_for_the_next_day(world: World) -> None:
    limit(world, gpu_seconds_per_day=3)
    world.worker()
    first, job_id = world.submit(), world.submit()
    world.turns()
    world.start(first)
    world.complete(first, 5_000)

    told = why(world, job_id)
    use = Oracle(world.state).answer(q.Question("use", "t_a"), world.now_ms)

    assert told.reasons[0].code == "budget_exhausted"
    assert "has used 5 of its 3 GPU-seconds of today" in told.reasons[0].detail
    assert use == q.TenantUse(0, 5_000, 86_400_000)
    assert told.place.eta_ms == 86_400_000 - world.now_ms
    backlog = Oracle(world.state).answer(q.Question("backlog", target_ms=1_000), world.now_ms)
    assert isinstance(backlog, q.Backlog)
    assert (backlog.jobs, backlog.work_ms, backlog.desired_workers) == (0, 0, 0), "more workers would change nothing"


def test_an_external_limit_without_tokens_says_which_and_counts_who_draws_on_it_before(world: World) -> None:
    rule = ev.ResourceRule(rate=2, window_ms=1_000)
    world.write("scheduler", ev.PolicyApplied(position="1-0", resources={"moderation": rule}))
    world.worker(slots=8)
    jobs = [world.submit(resources={"moderation": 1}) for _ in range(5)]
    free = world.submit("t_b")

    told = [why(world, job_id) for job_id in jobs]

    assert [reason.code for reason in told[0].reasons] == ["rate_limited"]
    assert "All starts that may call moderation are used (2 in 1.0 s, over all workers)" in told[0].reasons[0].detail
    assert [each.place.eta_ms for each in told] == [1_000, 1_000, 2_000, 2_000, 3_000]
    assert why(world, free, "t_b").reasons == ()


def test_a_tenant_at_its_limit_leaves_slots_idle_and_that_is_seen_with_its_reason(world: World) -> None:
    """Field case 21: a hard cap is obeyed although slots are idle; how long, and why, is counted."""
    limit(world, concurrency=1)
    world.worker(slots=4)
    for _ in range(4):
        job_id = world.submit()
    world.turns()
    oracle = Oracle(world.state)
    for _ in range(3):
        oracle.watch(world.now_ms)
        world.now_ms += 1_000

    told = why(world, job_id)
    backlog = oracle.answer(q.Question("backlog", target_ms=1_000), world.now_ms)

    assert [reason.code for reason in told.reasons] == ["tenant_concurrency", "fair_share"]
    assert "1 job in flight in this pool and may have 1" in told.reasons[0].detail
    assert isinstance(backlog, q.Backlog)
    assert backlog.idle_ms == {"tenant_concurrency": 2 * 3 * 1_000}
    assert backlog.desired_workers == 1, "more workers would change nothing"
    assert told.place.ahead == 3, "the one on deck and two earlier ones"
    assert told.place.eta_ms == 30_000, "one after the other"


def test_the_limit_of_a_user_holds_up_this_user_only(world: World) -> None:
    limit(world, user_concurrency=1)
    world.worker(slots=4)
    for user in "xxy":
        job_id = world.submit(user_digest=user)
    second = world.submit(user_digest="x")
    world.turns()

    assert codes(world, second)[0] == "user_concurrency"
    assert world.job(job_id).offers


def test_a_worker_that_works_is_wanted_although_nothing_waits(world: World) -> None:
    world.worker()
    job_id = world.submit()
    world.turns()
    world.start(job_id)

    answer = Oracle(world.state).answer(q.Question("backlog", target_ms=60_000), world.now_ms)

    assert answer == q.Backlog(0, 0, 0, 1)


def test_a_question_of_a_later_version_is_not_answered(world: World) -> None:
    assert Oracle(world.state).answer(q.Question("nonsense"), world.now_ms) is None  # type: ignore[arg-type]


def test_a_job_that_was_set_aside_says_so(world: World) -> None:
    job_id = world.submit()
    world.write("scheduler", ev.SchedulerMismatch(job_id=job_id, reason="r"))

    assert "set_aside" in codes(world, job_id)


def test_what_a_tenant_has_in_flight_is_counted(world: World) -> None:
    world.worker(slots=3)
    for _ in range(2):
        world.submit()
    world.turns()

    answer = Oracle(world.state).answer(q.Question("use", "t_a"), world.now_ms)

    assert isinstance(answer, q.TenantUse)
    assert answer.running == 2
    assert answer.resets_at_ms % 86_400_000 == 0

"""Who shares a pass: jobs of one class, in fair order inside the lead, with every cap and every byte counted singly."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import events as ev
from services.scheduler.decisions import Decision
from services.scheduler.fold.records import Job
from services.scheduler.verify import verify
from tests.scheduler.world import World

BATCHED = {"max_batch": 4, "bucket": "steps=30", "vram_bytes": 10}


def pool(workers: int = 1, slot_bytes: int = 1_000, **knobs: object) -> World:
    world = World()
    for number in range(workers):
        world.worker(f"w{number + 1}", slot_bytes=slot_bytes)
    world.write("scheduler", ev.PolicyApplied(position="1-0", policy=ev.PolicyFacts.model_validate(knobs)))
    return world


def assigned(decisions: list[Decision]) -> list[tuple[str, ev.JobAssigned]]:
    return [
        (decision.job_id, event)
        for decision in decisions
        for event in decision.write.events
        if isinstance(event, ev.JobAssigned)
    ]


def batches(decisions: list[Decision]) -> list[list[str]]:
    """Return the jobs of each pass that a turn offered."""
    found: dict[str, list[str]] = {}
    for job_id, event in assigned(decisions):
        found.setdefault(event.batch or event.offer_id, []).append(job_id)
    return list(found.values())


def test_jobs_of_one_class_share_a_pass_oldest_first_up_to_the_models_limit() -> None:
    world = pool()
    jobs = [world.submit(**BATCHED) for _ in range(6)]
    made = world.turn()

    assert batches(made) == [jobs[:4]]
    events = [event for _, event in assigned(made)]
    assert {(event.batch, event.batch_size, event.slot) for event in events} == {("1-0", 4, 0)}
    assert [event.why for event in events] == ["idle", "batch", "batch", "batch"]
    guards = [decision.write.worker_guard for decision in made]
    assert {(guard.deck_empty, guard.batch) for guard in guards if guard is not None} == {(0, "1-0")}
    assert verify(world.entries) == []


def test_another_bucket_model_or_size_of_batch_shares_nothing() -> None:
    world = pool()
    first = world.submit(**BATCHED)
    for other in ({"bucket": "steps=40"}, {"model": "echo@2"}, {"max_batch": None}, {"vram_bytes": 11}):
        world.submit(**BATCHED | other)
    assert batches(world.turn()) == [[first]]


def test_idle_devices_are_filled_before_anybody_shares_one() -> None:
    world = pool(workers=2)
    jobs = [world.submit(**BATCHED) for _ in range(2)]
    assert batches(world.turn()) == [[jobs[0]], [jobs[1]]]

    world = pool(workers=2)
    jobs = [world.submit(**BATCHED) for _ in range(6)]
    assert sorted(map(len, batches(world.turn()))) == [3, 3]


def test_bytes_count_singly_beside_what_else_the_device_holds() -> None:
    world = pool(slot_bytes=35)
    jobs = [world.submit(**BATCHED) for _ in range(4)]
    assert batches(world.turn()) == [jobs[:3]]

    world = World()
    world.worker(slots=2, slot_bytes=45, device="shared")
    world.submit(vram_bytes=10, model="echo@9")
    jobs = [world.submit(**BATCHED) for _ in range(8)]
    assert sum(event.bytes for _, event in assigned(world.turn())) <= 45


def test_caps_count_each_member() -> None:
    """Field case 13 for batches: two of a tenant at once are two, also in one pass."""
    world = pool()
    rules = {"t_a": ev.TenantRule(concurrency=2), "t_b": ev.TenantRule(user_concurrency=1)}
    weights = dict.fromkeys(rules, 3.0)
    world.write("scheduler", ev.PolicyApplied(position="1-1", tenants=rules, weights=weights))
    for _ in range(4):
        world.submit("t_a", **BATCHED)
        world.submit("t_b", user_digest="u", **BATCHED)
    tenants = Counter(world.job(job_id).tenant_id for job_id, _ in assigned(world.turn()))
    assert tenants == {"t_a": 2, "t_b": 1}


def test_each_member_takes_a_token_of_its_own_and_so_many_are_asked_for() -> None:
    """Field case 25 for batches: one pass is as many starts as it has members."""
    world = pool()
    rules = {"moderation": ev.ResourceRule(rate=3, window_ms=1_000)}
    world.turn(policy=ev.PolicyApplied(position="1-1", resources=rules))
    jobs = [world.submit(resources={"moderation": 1}, **BATCHED) for _ in range(4)]
    assert batches(world.turn()) == []
    assert world.state.wanted_tokens() == {"moderation": 3}
    narrow = pool(slot_bytes=25)
    narrow.turn(policy=ev.PolicyApplied(position="1-1", resources=rules))
    for _ in range(4):
        narrow.submit(resources={"moderation": 1}, **BATCHED)
    assert narrow.state.wanted_tokens() == {"moderation": 2}  # what cannot be used would be lost
    world.turn(limits=[ev.ResourceGranted(resource="moderation", n=3)])
    assert batches(world.turn()) == [jobs[:3]]
    assert verify(world.entries) == []


def test_members_are_taken_in_fair_order_and_only_inside_the_lead() -> None:
    """A tenant that is ahead of the anchor by more than A does not ride along."""
    world = World()
    world.worker(slot_bytes=1_000, models=("echo", "other"))
    world.write("scheduler", ev.PolicyApplied(position="1-0", policy=ev.PolicyFacts(lead_s=5.0)))
    ahead = world.running("t_ahead", model="other@1")
    near = world.submit("t_near")  # somebody waits at each moment, so that no debt is forgiven
    world.complete(ahead, gpu_ms=300_000)
    world.turn()
    world.start(near)
    for tenant in ("t_ahead", "t_near", "t_new", "t_new"):
        world.submit(tenant, **BATCHED)
    world.complete(near, gpu_ms=1_000)
    tenants = [world.job(job_id).tenant_id for job_id, _ in assigned(world.turn())]
    assert sorted(tenants) == ["t_near", "t_new", "t_new"]


def test_what_shares_a_warm_jobs_pass_leads_no_further_than_that_job_may() -> None:
    """Four loads of the fair job's model, and not all of A: a pass must not undo what a preference may cost."""
    world = World()
    world.worker(slot_bytes=1_000, models=("echo", "other"))
    world.write("scheduler", ev.PolicyApplied(position="1-0", policy=ev.PolicyFacts(lead_s=90.0)))
    world.state.estimates.learn_load("other@1", 1_000)
    seconds = {"t_ahead": 20, "t_near": 3, "t_new": 1, "t_next": 3}
    for job_id in [world.submit(tenant) for tenant in seconds]:
        world.turn()
        world.start(job_id)
        if job_id.endswith("4"):  # somebody waits at each moment, so that no debt is forgiven
            for tenant in ("t_ahead", "t_near", "t_next"):
                world.submit(tenant, **BATCHED)
            world.submit("t_new", model="other@1")
        world.complete(job_id, gpu_ms=1_000 * seconds[world.job(job_id).tenant_id])
    given = assigned(world.turn())
    assert [world.job(job_id).tenant_id for job_id, _ in given] == ["t_near", "t_next"]
    assert [event.why for _, event in given] == ["warm", "batch"]


def test_members_overtake_their_own_tenants_fair_job_by_no_more_than_the_bypass() -> None:
    world = pool(bypass_s=1.5)
    known = world.running()
    world.complete(known, gpu_ms=1_000)
    first = world.submit(**BATCHED)
    world.submit(bucket="steps=40", max_batch=4)
    others = [world.submit(**BATCHED) for _ in range(3)]
    assert batches(world.turn()) == [[first, *others[:2]]]


def test_an_unlucky_first_member_strands_nobody() -> None:
    """It was cancelled before the turn was written: the others are a smaller batch, and check mode explains it."""
    world = pool()
    jobs = [world.submit(**BATCHED) for _ in range(3)]
    seen = world.state.position

    def cancel_first(decision: Decision) -> bool:
        if decision.job_id == jobs[0] and world.state.position == seen:
            world.cancel(jobs[0])
        return decision.job_id == jobs[0]

    world.turn(refused=cancel_first)
    assert world.on_decks() == jobs[1:]
    assert verify(world.entries) == []
    for job_id in jobs[1:]:
        world.start(job_id)
    for job_id in jobs[1:]:
        world.complete(job_id)
    assert world.on_decks() == []


def test_a_job_that_is_to_run_alone_shares_nothing_until_it_is_retried() -> None:
    world = pool()
    jobs = [world.submit(**BATCHED) for _ in range(3)]
    world.turn()
    for job_id in jobs:
        job = world.start(job_id)
    for job_id in jobs:
        job = world.job(job_id)
        world.write(job_id, ev.JobQueued(reason="handed_back", attempt=0, alone=True), fence=job.fence)
    assert batches(world.turn()) == [[jobs[0]]]
    assert world.state.policy.waiting_count == 2


def test_nothing_overtakes_a_batch_on_a_deck() -> None:
    """Most of what would be withdrawn with it is somebody else's."""
    world = pool()
    world.running()
    jobs = [world.submit(priority="low", **BATCHED) for _ in range(2)]
    world.turns()
    world.submit(priority="urgent")
    world.turn()
    assert world.on_decks() == jobs


def test_what_a_batch_took_is_charged_to_its_members_and_learnt_once_for_each() -> None:
    world = pool()
    jobs = [world.submit(**BATCHED) for _ in range(2)]
    world.turn()
    for job_id in jobs:
        world.start(job_id)
    for job_id in jobs:
        world.write(job_id, ev.ModelLoadStarted(model="echo@1"), ev.ModelLoadCompleted(model="echo@1", ms=600), fence=1)
    for job_id in jobs:
        world.complete(job_id, gpu_ms=500)
    estimates = world.state.estimates
    assert (estimates.load_ms("echo@1"), estimates.run_ms("echo@1", "steps=30")) == (600, 200)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_subset_of_a_turns_members_keeps_caps_and_bytes_and_the_pool_comes_to_rest(seed: int) -> None:
    chance = random.Random(seed)
    slot_bytes = chance.choice((25, 50, 1_000))
    world = pool(workers=chance.randint(1, 3), slot_bytes=slot_bytes, lead_s=chance.choice((0.0, 5.0, 60.0)))
    caps = {"t_0": 1, "t_1": 3, "t_2": None}
    rules = {tenant: ev.TenantRule(concurrency=cap) for tenant, cap in caps.items()}
    world.write("scheduler", ev.PolicyApplied(position="1-1", tenants=rules, weights=dict.fromkeys(rules, 3.0)))
    for _ in range(chance.randint(1, 30)):
        bucket = chance.choice(("steps=30", "steps=40"))
        facts = BATCHED | {"bucket": bucket} if chance.random() < 0.8 else {"vram_bytes": 10}
        world.submit(chance.choice(tuple(rules)), user_digest=chance.choice("uv"), **facts)
    for _ in range(20):
        world.now_ms += 1_000
        lucky = random.Random(chance.random())
        made = world.turn(refused=lambda decision, lucky=lucky: lucky.random() < 0.3)  # type: ignore[misc]
        for members in batches(made):
            jobs = [world.job(job_id) for job_id in members]
            assert len({(job.model, job.bucket) for job in jobs}) == 1
            assert len(jobs) == 1 or len(jobs) <= jobs[0].max_batch
        _hold(world, caps, slot_bytes)
        for slot in [slot for worker in world.state.workers.values() for slot in worker.slots.values()]:
            for job_id in [] if slot.running_jobs else list(slot.deck_offers.values()):
                if chance.random() < 0.8:
                    world.start(job_id)
        for job in [job for job in world.state.jobs.values() if job.on_device]:
            if chance.random() < 0.7:
                _end(world, job, chance)
        _hold(world, caps, slot_bytes)
    assert all(job.status != "in_progress" or job.on_device for job in world.state.jobs.values())


def _end(world: World, job: Job, chance: random.Random) -> None:
    if chance.random() < 0.2:
        world.write(job.id, ev.JobQueued(reason="handed_back", attempt=job.attempt - 1, alone=True), fence=job.fence)
    else:
        world.complete(job.id, gpu_ms=chance.randint(1, 4_000))


def _hold(world: World, caps: dict[str, int | None], slot_bytes: int) -> None:
    held = Counter(job.tenant_id for job in world.state.jobs.values() if job.offers or job.worker_id)
    assert all(cap is None or held[tenant] <= cap for tenant, cap in caps.items())
    for worker in world.state.workers.values():
        for slot in worker.slots.values():
            assert slot.held_bytes <= slot_bytes

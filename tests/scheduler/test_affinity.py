"""Warm devices, holds, late and several decks, drains: each rule on a small pool."""

from itertools import pairwise

from contracts import events as ev
from tests.scheduler.world import World


def pool(workers: int = 2, **knobs: object) -> World:
    """Workers with one slot each that serve models a and b; a load takes 10 s, a run 5 s."""
    world = World()
    for number in range(workers):
        world.worker(f"w{number}", models=("a", "b"))
    world.write("scheduler", ev.PolicyApplied(position="1-0", policy=ev.PolicyFacts.model_validate(knobs)))
    for model in ("a@1", "b@1"):
        warm(world, model)
    return world


def warm(world: World, model: str) -> None:
    """Let both averages of a model be measured once."""
    world.state.estimates.learn_load(model, 10_000)
    world.state.estimates.learn_run(model, "", 5_000)


def run(world: World, job_id: str) -> None:
    world.turn()
    world.start(job_id)


def whys(world: World) -> list[str]:
    return [entry.raw_data()["why"] for entry in world.entries if entry.type == ev.JobAssigned.TYPE]


def test_a_job_goes_to_the_idle_device_that_has_its_model() -> None:
    """Field case 22: models A and B in turns do not swap two devices at every job."""
    world = pool()
    first = [world.submit(model=model) for model in ("a@1", "b@1")]
    world.turn()
    at = {world.job(job_id).model: world.offer_of(job_id).worker_id for job_id in first}
    for job_id in first:
        world.start(job_id)
        world.complete(job_id)

    later = [world.submit(model=model) for model in ("b@1", "a@1")]
    world.turn()

    assert {world.job(job_id).model: world.offer_of(job_id).worker_id for job_id in later} == at


def test_a_job_waits_for_a_busy_warm_device_that_is_free_before_a_load_would_be_over() -> None:
    """Field case 23: with a long load and a short job it queues behind the warm card, and the log says so."""
    world = pool()
    run(world, world.submit(model="a@1"))
    world.now_ms += 8_000  # it loads for 10 s and runs for 5 s: free in 7 s
    job_id = world.submit(model="a@1")

    world.turn()

    assert world.offer_of(job_id).worker_id == "w0"
    assert whys(world) == ["idle", "hold"]
    assert world.offer_of(job_id).hold_until_ms == world.now_ms + 10_000
    assert world.turn() == []


def test_a_device_is_not_left_idle_for_a_warm_one_that_is_busy_for_longer_than_a_load() -> None:
    """Field case 23: four devices, four jobs of one model: all run at once."""
    world = pool(workers=4)
    first = world.submit(model="a@1")
    run(world, first)
    jobs = [world.submit(model="a@1") for _ in range(3)]

    world.turn()

    assert {world.offer_of(job_id).worker_id for job_id in jobs} == {"w1", "w2", "w3"}


def test_a_hold_that_lasts_too_long_is_offered_elsewhere_once_and_charged_once() -> None:
    world = pool()
    run(world, world.submit(model="a@1"))
    world.now_ms += 8_000
    job_id = world.submit(model="a@1")
    world.turn()
    charges = dict(world.state.policy.ledger.charges)
    assert world.state.next_deck_ms(world.now_ms) == world.now_ms + 10_000

    world.now_ms += 10_000
    world.turn()

    assert {offer.worker_id for offer in world.job(job_id).offers.values()} == {"w0", "w1"}
    assert whys(world)[-1] == "late_hold"
    assert world.state.policy.ledger.charges == charges
    assert world.turn() == []


def test_a_job_is_held_once_only() -> None:
    world = pool()
    run(world, world.submit(model="a@1"))
    world.now_ms += 8_000
    job_id = world.submit(model="a@1")
    world.turn()
    world.decline(job_id, reason="overtaken")

    world.turn()

    assert world.offer_of(job_id).worker_id == "w1"
    assert whys(world)[-1] == "idle"


def test_no_job_is_held_where_the_knob_is_off() -> None:
    world = pool(hold=False)
    run(world, world.submit(model="a@1"))
    world.now_ms += 8_000
    job_id = world.submit(model="a@1")

    world.turn()

    assert world.offer_of(job_id).worker_id == "w1"


def test_a_warm_model_may_go_first_inside_the_lead_and_not_beyond() -> None:
    """Field case 22: grouping by model is bounded by the lead, so that no tenant waits for another's model for ever."""
    world = pool(workers=1, lead_s=6.0, hold=False)
    for tenant in ("t_a", "t_b"):
        for _ in range(8):
            world.submit(tenant, model="a@1" if tenant == "t_a" else "b@1")
    served = []
    for _ in range(8):
        world.turn()
        (job_id,) = world.on_decks()
        world.start(job_id)
        served.append(world.job(job_id).model)
        world.complete(job_id, gpu_ms=5_000)

    # weight 3: each job moves a tenant by 1.7 s, so that one may be four ahead before the other is asked
    swaps = sum(one != other for one, other in pairwise(served))
    assert swaps <= 2
    assert {"a@1", "b@1"} == set(served)


def test_nothing_is_bound_behind_a_long_job_before_its_slot_is_free() -> None:
    """Field case 19: what is not bound early can still go to whichever device is free first."""
    world = pool(workers=1, deck_lead_s=3.0)
    running = world.submit(model="a@1")
    run(world, running)
    job_id = world.submit(model="a@1")
    for _ in range(2):
        world.turn()
        assert world.on_decks() == []
        assert world.state.next_deck_ms(world.now_ms) is None
        world.now_ms += 60_000  # the second time far beyond its estimate

    world.complete(running)
    world.turn()

    assert world.on_decks() == [job_id]


def test_behind_a_short_job_the_deck_is_filled_when_its_slot_is_nearly_free() -> None:
    """The gap between two jobs counts only where jobs are short; loading its model does not make one long."""
    world = pool(workers=1, deck_lead_s=8.0)
    running = world.submit(model="a@1")
    run(world, running)
    job_id = world.submit(model="a@1")
    assert world.turn() == []

    world.write(running, ev.ModelLoadStarted(model="a@1"), fence=1)
    world.now_ms += 10_000
    world.write(running, ev.ModelLoadCompleted(model="a@1", ms=10_000), fence=1)
    world.turn()

    assert world.on_decks() == [job_id]


def test_a_job_of_an_owed_tier_lets_a_warm_one_go_first_only_while_a_load_would_have_taken_as_long() -> None:
    world = pool(workers=1, tier_floors={"enterprise": 0.5})
    rules = {"t_e": ev.TenantRule(tier="enterprise"), "t_f": ev.TenantRule(tier="free")}
    world.write("scheduler", ev.PolicyApplied(position="2-0", weights={"t_e": 8.0, "t_f": 1.0}, tenants=rules))
    first = world.submit("t_f", model="a@1")
    run(world, first)
    world.complete(first)
    owed, warm_one = world.submit("t_e", model="b@1"), world.submit("t_f", model="a@1")
    world.turn()
    assert world.on_decks() == [warm_one]
    world.start(warm_one)
    another = world.submit("t_f", model="a@1")
    world.now_ms += 16_000  # one load and a half
    world.complete(warm_one)

    world.turn()

    assert world.on_decks() == [owed]
    assert not world.job(another).offers


def test_a_pressing_job_lies_on_several_decks_and_the_first_start_wins() -> None:
    """Field case 19: both devices busy, low jobs wait, the high one is next on whichever is free first."""
    world = pool()
    running = [world.submit(model="a@1") for _ in range(2)]
    world.turn()
    for job_id in running:
        world.start(job_id)
    low = [world.submit(model="a@1", priority="low") for _ in range(2)]
    high = world.submit(model="a@1", priority="high")

    world.turn()

    assert {offer.worker_id for offer in world.job(high).offers.values()} == {"w0", "w1"}
    assert not any(world.job(job_id).offers for job_id in low)
    assert len(world.state.policy.ledger.charges) == 3


def test_a_device_drains_for_a_large_job_and_others_go_on_beside_it_only_inside_the_lead() -> None:
    """Field case 18: a job that fits only on an empty device is not starved by small ones."""
    world = World()
    world.worker(slots=2, slot_bytes=100, device="gpu-0")
    world.write("scheduler", ev.PolicyApplied(position="1-0", policy=ev.PolicyFacts(lead_s=4.0)))
    small = [world.submit("t_small", vram_bytes=40) for _ in range(30)]
    large = world.submit("t_large", vram_bytes=100)
    started = []
    while large not in started:
        world.turns()
        for job_id in world.on_decks():
            offer = world.offer_of(job_id)
            slot = world.state.seating.slot(offer.worker_id, offer.slot)
            if slot is not None and slot.running is None:
                world.start(job_id)
                started.append(job_id)
        world.now_ms += 1_000
        running = [job_id for job_id in started if world.job(job_id).on_device]
        if running:
            world.complete(running[0], gpu_ms=1_000)

    assert started.index(large) <= 12
    assert len(small) > 20


def test_users_of_a_tenant_take_turns_by_their_device_time() -> None:
    """Field case 14, one level down: one user with many jobs does not keep the others of its tenant waiting."""
    world = World()
    world.worker()
    many = [world.submit(user_digest="u_many") for _ in range(20)]
    few = [world.submit(user_digest="u_few") for _ in range(3)]
    served = []
    for _ in range(8):
        world.turn()
        (job_id,) = world.on_decks()
        world.start(job_id)
        world.complete(job_id)
        served.append(job_id)

    assert set(few) <= set(served[:7])
    assert served[0] == many[0]


def test_a_more_pressing_job_of_the_same_user_takes_the_deck_under_the_users_cap() -> None:
    world = World()
    world.worker()
    rule = ev.TenantRule(user_concurrency=2)
    world.write("scheduler", ev.PolicyApplied(position="1-0", weights={"t_a": 3.0}, tenants={"t_a": rule}))
    world.running(user_digest="u")
    low = world.submit(user_digest="u", priority="low")
    world.turn()
    assert world.on_decks() == [low]
    urgent = world.submit(user_digest="u", priority="urgent")

    world.turns()

    assert world.on_decks() == [urgent]

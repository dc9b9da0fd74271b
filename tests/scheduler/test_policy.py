"""Who is served next, and where: the rules of choice, each on a small pool without a store."""

import pytest

from contracts import events as ev
from services.scheduler.fold.keeping import dump_policy
from services.scheduler.fold.snapshot import dump
from services.scheduler.verify import verify
from tests.scheduler.world import World


def test_urgent_jobs_come_before_low_ones_and_each_band_keeps_the_order_of_admission() -> None:
    world = World()
    world.worker()
    jobs = [world.submit(priority=word) for word in ("low", "normal", "urgent", "high", "normal", "urgent")]

    ran = []
    for _ in jobs:
        world.turn()
        ran.append(world.on_decks()[0])
        world.start(ran[-1])
        world.complete(ran[-1])

    assert ran == [jobs[i] for i in (2, 5, 3, 1, 4, 0)]


def test_an_urgent_job_of_one_tenant_does_not_pass_another_tenant_that_is_owed_time() -> None:
    world = World()
    world.worker()
    world.running("t_a")
    world.submit("t_a", priority="urgent")
    waiting = world.submit("t_b", priority="low")

    world.turn()

    assert world.on_decks() == [waiting]


def test_idle_slots_are_filled_before_the_decks_of_busy_ones_and_no_slot_gets_two() -> None:
    """Field case 23: an idle device is never left for one that is warm or merely first."""
    world = World()
    world.worker("w1", slots=2)
    world.worker("w2", slots=2)
    world.running()
    for _ in range(6):
        world.submit()

    world.turn()

    assert len(world.on_decks()) == 4
    whys = [e.raw_data()["why"] for e in world.entries if e.type == "job.assigned"][1:]
    assert whys == ["idle", "idle", "idle", "deck"]
    assert world.turn() == []


def test_the_deck_that_is_free_soonest_is_filled_first() -> None:
    world = World()
    world.worker("w1")
    world.worker("w2")
    long, short = world.submit(), world.submit()
    world.turn()
    world.start(long)
    world.now_ms += 5_000
    world.start(short)
    job = world.submit()

    world.turn()

    assert world.offer_of(job).worker_id == world.job(long).worker_id


def test_a_model_goes_only_to_workers_that_list_it_and_what_fits_nowhere_blocks_nobody() -> None:
    """Field case 18: a job that no device can hold waits alone."""
    world = World()
    world.worker("w1", slot_bytes=24, models=("echo",))
    world.worker("w2", slot_bytes=24, models=("other@1",))
    huge = world.submit(vram_bytes=200)
    unknown = world.submit(model="nobody@1")
    other = world.submit(model="other@1", vram_bytes=24)
    echo = world.submit(vram_bytes=24)

    world.turn()

    assert (world.offer_of(other).worker_id, world.offer_of(echo).worker_id) == ("w2", "w1")
    assert not world.job(huge).offers
    assert not world.job(unknown).offers


def test_two_slots_of_one_device_share_its_bytes() -> None:
    world = World()
    world.worker(slots=2, slot_bytes=100, device="gpu-0")
    first, second, small = world.submit(vram_bytes=70), world.submit(vram_bytes=70), world.submit(vram_bytes=30)

    world.turn()
    assert sorted(world.on_decks()) == [first, small]
    world.start(first)
    world.start(small)
    world.turn()

    # the deck of a slot takes over the room of what runs there, never more
    assert world.on_decks() == [second]
    assert world.offer_of(second).slot == world.job(first).slot


def test_a_more_pressing_job_of_the_same_tenant_takes_the_deck_in_two_turns() -> None:
    """Field case 19: an urgent job does not wait behind what was reserved for a busy device."""
    world = World()
    world.worker()
    running, low = world.submit(), world.submit(priority="low")
    world.turn()
    world.start(running)
    world.turn()
    assert world.on_decks() == [low]
    urgent = world.submit(priority="urgent")

    withdrawn = world.turn()
    assert [type(event) for decision in withdrawn for event in decision.write.events] == [ev.JobUnassigned]
    assert world.on_decks() == []
    world.turn()

    assert world.on_decks() == [urgent]
    assert world.turn() == []
    assert not verify(world.entries)


def test_no_deck_is_taken_for_a_pressing_job_that_the_same_turn_offers_to_an_idle_device() -> None:
    world = World()
    world.worker("w1")
    running, low = world.submit(), world.submit(priority="low")
    world.turn()
    world.start(running)
    world.turn()
    world.worker("w2")
    urgent = world.submit(priority="urgent")

    world.turn()

    assert world.on_decks() == [low, urgent]


@pytest.mark.parametrize("word", ["normal", "low"])
def test_only_pressing_jobs_overtake(word: str) -> None:
    world = World()
    world.worker()
    running, low = world.submit(), world.submit(priority="low")
    world.turn()
    world.start(running)
    world.turn()
    world.submit(priority=word)

    assert world.turn() == []
    assert world.on_decks() == [low]


def test_what_a_turn_gives_away_counts_at_once() -> None:
    """Charging at the end would give the first tenant every free slot."""
    world = World()
    world.worker(slots=4)
    for tenant in ("t_a", "t_b"):
        for _ in range(4):
            world.submit(tenant)

    world.turn()

    assert sorted(world.job(job_id).tenant_id for job_id in world.on_decks()) == ["t_a", "t_a", "t_b", "t_b"]


def test_an_offer_that_comes_to_nothing_is_charged_for_nothing() -> None:
    world = World()
    world.worker()
    job_id = world.submit("t_a")
    world.submit("t_b")
    before = _charged(world)
    world.turn()
    assert world.on_decks() == [job_id]
    assert _charged(world) != before

    world.decline(job_id, reason="overtaken")

    assert _charged(world) == before
    assert dump_policy(world.state.policy)["charges"] == {}


def test_choosing_leaves_no_trace_and_gives_the_same_again() -> None:
    world = World()
    world.worker("w1", slots=3)
    for tenant in ("t_a", "t_b", "t_c"):
        for word in ("low", "urgent"):
            world.submit(tenant, priority=word, start_by_ms=5_000 if word == "low" else None)
    before = dump(world.state)

    late_ms = world.now_ms + 10_000
    chosen = [world.state.choose(at_ms, 2) for at_ms in (world.now_ms, late_ms, world.now_ms, late_ms)]

    assert chosen[0] == chosen[2]
    assert chosen[1] == chosen[3]
    assert dump(world.state) == before


def test_nothing_is_withdrawn_for_a_pressing_job_that_the_device_has_no_room_for() -> None:
    """Else the deck would be taken and given back for ever."""
    world = World()
    world.worker(slots=2, slot_bytes=100, device="gpu-0")
    for job_bytes in (60, 30):
        world.submit(vram_bytes=job_bytes)
    world.turn()
    for job_id in list(world.on_decks()):
        world.start(job_id)
    low = world.submit(priority="low", vram_bytes=30)
    world.turn()
    assert world.on_decks() == [low]

    world.submit(priority="urgent", vram_bytes=90)

    world.turns()
    assert world.on_decks() == [low]


def test_a_job_whose_priority_changes_stands_in_its_new_band_where_its_age_puts_it() -> None:
    world = World()
    jobs = [world.submit(priority=word) for word in ("high", "low", "high")]
    world.write(jobs[1], ev.JobPriorityChanged(priority="high", previous="low"))
    world.worker(slots=1)

    ran = []
    for _ in jobs:
        world.turns()
        ran.append(world.start(world.on_decks()[0]).id)
        world.complete(ran[-1])

    assert ran == jobs


def test_a_job_that_is_raised_to_urgent_takes_the_deck_and_one_that_is_lowered_loses_it() -> None:
    """Field case 19, for a job that is there already."""
    world = World()
    world.worker(slots=1)
    running, on_deck, waiting = [world.submit(priority="high") for _ in range(3)]
    world.turns()
    world.start(running)
    world.turns()
    assert world.on_decks() == [on_deck]

    world.write(waiting, ev.JobPriorityChanged(priority="urgent", previous="high"))
    world.turns()
    assert world.on_decks() == [waiting]

    world.write(waiting, ev.JobPriorityChanged(priority="low", previous="urgent"))
    world.turns()
    assert world.on_decks() == [on_deck]


def _charged(world: World) -> object:
    """What every tenant, user and tier was charged, and the pool in all."""
    ledger = world.state.policy.ledger
    tenants = {
        tenant.id: (tenant.v, {user.id: user.v for user in tenant.users.values()}) for tenant in ledger.tenants.values()
    }
    return tenants, [tier.rho for tier in ledger.tiers], ledger.charged

"""Who is served next, and where: the rules of choice, each on a small pool without a store."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from contracts import events as ev
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
    first = world.submit("t_a")
    world.turn()
    world.start(first)
    world.submit("t_a", priority="urgent")
    waiting = world.submit("t_b", priority="low")

    world.turn()

    assert world.on_decks() == [waiting]


def test_idle_slots_are_filled_before_the_decks_of_busy_ones_and_no_slot_gets_two() -> None:
    """Field case 23: an idle device is never left for one that is warm or merely first."""
    world = World()
    world.worker("w1", slots=2)
    world.worker("w2", slots=2)
    busy = world.submit()
    world.turn()
    world.start(busy)
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


def test_backlogged_tenants_get_device_time_by_weight_whatever_their_jobs_take() -> None:
    """Field case 14: shares are of device time, not of jobs."""
    world = World()
    for index in range(4):
        world.worker(f"w{index}")
    world.write("scheduler", ev.PolicyApplied(position="1-0", weights={"t_long": 3.0, "t_short": 3.0, "t_paid": 6.0}))
    length_ms = {"t_long": 8_000, "t_short": 1_000, "t_paid": 4_000}
    for tenant in length_ms:
        for _ in range(3_000):
            world.submit(tenant)  # one model: its estimate is wrong for all of them

    served = _serve(world, length_ms, until_ms=600_000)

    unit = served["t_long"]
    assert served["t_short"] == pytest.approx(unit, abs=4 * 8_000)
    assert served["t_paid"] / 2 == pytest.approx(unit, abs=4 * 8_000)
    assert sum(served.values()) > 0.95 * 4 * 600_000


def test_a_tenant_that_comes_late_is_served_at_once_but_gets_no_credit_for_its_idle_time() -> None:
    """Field case 14: a flood of one tenant does not make others wait for its end."""
    world = World()
    world.worker("w0")
    length_ms = {"t_flood": 100, "t_b": 100, "t_c": 100}
    for _ in range(1_000):
        world.submit("t_flood")
    _serve(world, length_ms, until_ms=5_000)
    late = [world.submit(tenant) for _ in range(5) for tenant in ("t_b", "t_c")]
    begun = len(world.entries)

    _serve(world, length_ms, until_ms=5_000)

    starts = [entry.subject for entry in world.entries[begun:] if entry.type == "job.started"]
    tenants = [world.job(job_id).tenant_id for job_id in starts]
    assert set(late) <= set(starts[:20])
    assert 3 <= tenants[:15].count("t_flood") <= 7


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
    before = world.state.policy.snapshot()
    world.turn()
    assert world.on_decks() == [job_id]

    world.decline(job_id, reason="overtaken")

    after = world.state.policy.snapshot()
    assert (after["tenants"], after["charges"]) == (before["tenants"], {})


def test_a_tenant_that_ran_one_thing_for_long_has_saved_up_nothing() -> None:
    world = World()
    world.worker("w0")
    world.worker("w1")
    long = world.submit("t_idle", timeout_ms=10**9)
    world.turn()
    world.start(long)
    for _ in range(400):
        world.submit("t_flood")
    length_ms = {"t_idle": 1_000, "t_flood": 1_000}
    _serve(world, length_ms, until_ms=200_000, busy={"w0": long})
    begun = len(world.entries)
    for _ in range(100):
        world.submit("t_idle")

    _serve(world, length_ms, until_ms=20_000, busy={"w0": long})

    starts = [world.job(e.subject).tenant_id for e in world.entries[begun:] if e.type == "job.started"]
    assert 5 <= starts[:20].count("t_flood") <= 15


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


def _serve(
    world: World, length_ms: dict[str, int], until_ms: int, busy: Mapping[str, str] = MappingProxyType({})
) -> dict[str, int]:
    """Let all workers run what they are offered for `until_ms`; returns device time by tenant.

    `busy`: workers that are left alone, because they run something else all the while.
    """
    served = dict.fromkeys(length_ms, 0)
    end_ms = world.now_ms + until_ms
    running: dict[str, tuple[int, str]] = {}  # worker -> when it ends, job
    idle = [worker for worker in world.state.workers.values() if worker.id not in busy]
    while world.now_ms < end_ms:
        for worker in idle:
            slot = worker.slots[0]
            if worker.id in running and running[worker.id][0] <= world.now_ms:
                job_id = running.pop(worker.id)[1]
                length = length_ms[world.job(job_id).tenant_id]
                world.complete(job_id, gpu_ms=length)
                served[world.job(job_id).tenant_id] += length
            if worker.id not in running and slot.deck is not None:
                job_id = slot.deck
                world.start(job_id)
                running[worker.id] = (world.now_ms + length_ms[world.job(job_id).tenant_id], job_id)
        world.turn()
        free = any(w.id not in running for w in idle if w.slots[0].deck is not None)
        if not free and running:
            world.now_ms = max(world.now_ms, min(end for end, _ in running.values()))
    for worker in world.state.workers.values():  # what runs is finished, so that the pool can be served again
        if worker.id in running:
            world.complete(running[worker.id][1], gpu_ms=1)
    return served


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

"""Fair shares: backlogged tenants get device time by weight, within a bound, whatever their jobs take."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import events as ev
from services.scheduler.fold.eligible import waiting_of
from tests.scheduler.world import World

LONGEST_MS = 5_000


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

    served = _serve(world, length_ms, lambda job_id: length_ms[world.job(job_id).tenant_id], until_ms=600_000)

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
    _serve(world, length_ms, lambda job_id: length_ms[world.job(job_id).tenant_id], until_ms=5_000)
    late = [world.submit(tenant) for _ in range(5) for tenant in ("t_b", "t_c")]
    begun = len(world.entries)

    _serve(world, length_ms, lambda job_id: length_ms[world.job(job_id).tenant_id], until_ms=5_000)

    starts = [entry.subject for entry in world.entries[begun:] if entry.type == "job.started"]
    tenants = [world.job(job_id).tenant_id for job_id in starts]
    assert set(late) <= set(starts[:20])
    assert 3 <= tenants[:15].count("t_flood") <= 7


def test_a_tenant_that_ran_one_thing_for_long_has_saved_up_nothing() -> None:
    world = World()
    world.worker("w0")
    world.worker("w1")
    long = world.running("t_idle", timeout_ms=10**9)
    for _ in range(400):
        world.submit("t_flood")
    length_ms = {"t_idle": 1_000, "t_flood": 1_000}
    _serve(world, length_ms, lambda job_id: length_ms[world.job(job_id).tenant_id], until_ms=200_000, busy={"w0": long})
    begun = len(world.entries)
    for _ in range(100):
        world.submit("t_idle")

    _serve(world, length_ms, lambda job_id: length_ms[world.job(job_id).tenant_id], until_ms=20_000, busy={"w0": long})

    starts = [world.job(e.subject).tenant_id for e in world.entries[begun:] if e.type == "job.started"]
    assert 5 <= starts[:20].count("t_flood") <= 15


@settings(max_examples=15, deadline=None)
@given(
    workers=st.integers(1, 4),
    weights=st.lists(st.sampled_from([1, 3, 8]), min_size=2, max_size=4),
    lengths=st.lists(st.integers(1, LONGEST_MS), min_size=5, max_size=20),
)
def test_no_backlogged_tenant_gets_ahead_of_another_by_more_than_the_bound(
    workers: int, weights: list[int], lengths: list[int]
) -> None:
    """(1 + C) L/w for each of the two, and twice the error of the estimates of what is in flight."""
    world = World()
    tenants = {f"t_{i}": weight for i, weight in enumerate(weights)}
    world.write("scheduler", ev.PolicyApplied(position="1-0", weights=dict(tenants)))
    for index in range(workers):
        world.worker(f"w{index}")
    for number in range(80):
        for tenant in tenants:
            world.submit(tenant, model=f"echo@{number % 3}")
    order = {job_id: number for number, job_id in enumerate(world.state.jobs)}

    served = _serve(world, tenants, lambda job_id: lengths[order[job_id] % len(lengths)], until_ms=60_000)

    backlogged = [
        tenant
        for tenant in tenants
        if any(job.tenant_id == tenant and waiting_of(job) for job in world.state.jobs.values())
    ]
    in_flight, error_ms = 2 * workers, 10_000  # of the first estimate, before anything was measured
    for one in backlogged:
        for other in backlogged:
            shares = 1 / tenants[one] + 1 / tenants[other]
            bound_ms = shares * ((1 + in_flight) * LONGEST_MS + 2 * in_flight * error_ms)
            assert abs(served[one] / tenants[one] - served[other] / tenants[other]) <= bound_ms


def _serve(
    world: World,
    tenants: Mapping[str, int],
    length_ms: Callable[[str], int],
    until_ms: int,
    busy: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, int]:
    """Let all workers run what they are offered for `until_ms`; returns device time by tenant.

    `busy`: workers that are left alone, because they run something else all the while.
    """
    served = dict.fromkeys(tenants, 0)
    end_ms = world.now_ms + until_ms
    running: dict[str, tuple[int, str]] = {}  # worker -> when it ends, job
    idle = [worker for worker in world.state.workers.values() if worker.id not in busy]
    while world.now_ms < end_ms:
        for worker in idle:
            slot = worker.slots[0]
            if worker.id in running and running[worker.id][0] <= world.now_ms:
                job_id = running.pop(worker.id)[1]
                length = length_ms(job_id)
                world.complete(job_id, gpu_ms=length)
                served[world.job(job_id).tenant_id] += length
            if worker.id not in running and slot.deck is not None:
                job_id = slot.deck
                world.start(job_id)
                running[worker.id] = (world.now_ms + length_ms(job_id), job_id)
        world.turn()
        free = any(w.id not in running for w in idle if w.slots[0].deck is not None)
        if not free and not running:
            break  # nothing is left to serve
        if not free:
            world.now_ms = max(world.now_ms, min(end for end, _ in running.values()))
    for worker in world.state.workers.values():  # what runs is finished, so that the pool can be served again
        if worker.id in running:
            world.complete(running[worker.id][1], gpu_ms=1)
    return served

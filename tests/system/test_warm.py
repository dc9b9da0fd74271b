"""Models and the devices that hold them: grouped within a bound, never at the price of an idle device."""

import pytest

from tests.harness import Stack
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_alternating_models_of_two_tenants_are_grouped(start_stack: Starter) -> None:
    """Field case 22: ABAB from two tenants on one slot swaps a few times, not each time; a load is an event."""
    stack = await start_stack(devices="sim:100MiB")
    other = await stack.make_tenant()
    blocker = await stack.submit("slow", {"steps": 10, "step_s": 0.05})
    await stack.wait_for(blocker, "job.started")
    for i in range(20):
        await stack.submit("cold_a" if i % 2 else "cold_b", key=other if i % 4 < 2 else None)

    await stack.wait_for_ends()

    loads = [entry for entry in stack.log.entries if entry.type == "model.load_started" and entry.subject != blocker]
    assert len(loads) <= 6
    assert len(loads) == len(
        [e for e in stack.log.entries if e.type == "model.load_completed" and e.subject != blocker]
    )
    await stack.audit()


TAKEN_TURNS = [[], *[["cold_b@1"], ["cold_a@1"]] * 2, ["cold_b@1"]]


@pytest.mark.parametrize(("device", "left"), [("sim:150MiB", [[], []]), ("sim:100MiB", TAKEN_TURNS)])
async def test_two_models_share_a_device_where_both_fit_and_take_turns_where_not(
    start_stack: Starter, device: str, left: list[list[str]]
) -> None:
    """ABAB, one job at a time: where both fit the second round loads nothing, where not none runs out of memory."""
    stack = await start_stack(devices=device)
    for number in range(6):
        await stack.wait_for_ends(await stack.submit("cold_a" if number % 2 else "cold_b"))

    loaded = [entry.raw_data() for entry in stack.log.entries if entry.type == "model.load_completed"]
    assert [each["evicted"] for each in loaded] == left
    assert not [entry for entry in stack.log.entries if entry.type == "job.attempt_failed"]
    await stack.audit()


async def test_idle_devices_are_used_although_another_is_warm(start_stack: Starter) -> None:
    """Field case 23: four jobs of a model that one of four slots holds run side by side."""
    stack = await start_stack(devices="cpu*4")
    first = await stack.submit("cold_a")
    await stack.wait_for_ends(first)

    jobs = [await stack.submit("cold_a", {"run_s": 2.0}) for _ in range(4)]
    await stack.wait_for_ends()

    slots = {entry.raw_data()["slot"] for job in jobs for entry in stack.log.of(job, "job.started")}
    assert len(slots) == 4
    await stack.audit()


async def test_a_short_job_may_wait_for_a_warm_device_when_loading_takes_longer(stack: Stack) -> None:
    """Field case 23: the event of the decision says that it is a hold, and until when."""
    await stack.wait_for_ends(await stack.submit("frozen"))
    running = await stack.submit("frozen", {"run_s": 0.6})
    await stack.wait_for(running, "job.started")

    held = await stack.submit("frozen")
    await stack.wait_for_ends()

    (offer,) = stack.log.of(held, "job.assigned")
    assert offer.raw_data()["why"] == "hold"
    assert stack.log.of(held, "model.load_started") == []
    assert stack.log.of(held, "job.started")[0].raw_data()["warm"] is True
    await stack.audit()

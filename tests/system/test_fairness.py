"""Fair shares, caps and bands with whole processes: what the rules promise must survive workers, restarts and races."""

import asyncio

import pytest

from contracts import events as ev
from contracts.positions import entry_ms
from contracts.wire import Entry
from tests.harness import Stack, eventually
from tests.harness.tail import ENDS
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

CAP = 2
KILLS = 4  # 20 of them, one each 3 s, is the whole case; run by hand with this number raised
ONE_SLOT = {"steps": 1, "step_s": 0.1}


async def test_two_late_tenants_share_with_a_flood_of_a_thousand_jobs(start_stack: Starter) -> None:
    """Field case 14: the late ones' starts are interleaved with the flood's, and their last job is done in seconds."""
    stack = await start_stack(devices="cpu")
    late = {name: await stack.make_tenant() for name in ("b", "c")}
    for _ in range(10):
        await asyncio.gather(*(stack.submit("paced", ONE_SLOT) for _ in range(100)))
    flood = list(stack.jobs)
    await stack.log.wait_until(lambda: sum(map(stack.log.has_ended, flood)) >= 10, "the flood is being worked on")

    jobs = {name: [await stack.submit("paced", ONE_SLOT, key=key) for _ in range(5)] for name, key in late.items()}
    await stack.wait_for_ends(*jobs["b"], *jobs["c"])

    for mine in jobs.values():
        begun = entry_ms(stack.log.of(mine[0], "job.created")[0].position)
        assert entry_ms(stack.log.of(mine[-1], "job.completed")[0].position) - begun < 5_000
    since = next(i for i, entry in enumerate(stack.log.entries) if entry.subject == jobs["b"][0])
    starts = [entry.subject for entry in stack.log.entries[since:] if entry.type == "job.started"]
    last = max(starts.index(mine[-1]) for mine in jobs.values())
    assert sum(job in flood for job in starts[: last + 1]) <= 5 + 4  # a third of the starts, and what was under way


async def test_a_cap_holds_while_the_leader_is_killed_again_and_again(start_stack: Starter) -> None:
    """Field case 15: counted from the log, never more than the cap are offered or running, whoever leads."""
    stack = await start_stack(devices="cpu*4")
    key = await stack.make_tenant(limits={"concurrency": CAP})
    jobs = [await stack.submit("slow", {"steps": 4, "step_s": 0.05}, key=key) for _ in range(60)]
    for number in range(1, KILLS + 1):
        target = number * 60 // (KILLS + 2)
        await stack.log.wait_until(
            lambda n=target: sum(map(stack.log.has_ended, jobs)) >= n, f"{target} jobs have ended"
        )  # type: ignore[misc]
        # what was on the decks may end before the one that was killed last is there again
        await eventually(lambda: stack.processes("scheduler"), "a scheduler")
        stack.kill("scheduler")

    await stack.wait_for_ends(*jobs, limit_s=90)

    most = most_at_once(stack.log.entries, set(jobs))
    assert most == CAP  # reached, never passed
    assert not [entry for entry in stack.log.entries if entry.type == "scheduler.mismatch"]
    await stack.audit()


async def test_a_constant_stream_of_high_priority_does_not_keep_low_from_running(start_stack: Starter) -> None:
    """Field case 17: a band's head that was passed over by more than 2 B of its tenant's own service is served next."""
    stack = await start_stack(devices="cpu", settings={"HEADRACE_SCHEDULER__POLICY__BYPASS_S": "0.5"})
    first = await stack.submit("paced", ONE_SLOT)
    await stack.wait_for_ends(first)  # the estimate is known
    before = await stack.submit("slow", {"steps": 10, "step_s": 0.1})  # until all of them wait
    await stack.wait_for(before, "job.started")
    low = [await stack.submit("paced", ONE_SLOT, priority="low") for _ in range(3)]
    high = [await stack.submit("paced", ONE_SLOT, priority="high") for _ in range(60)]

    await stack.wait_for_ends(*low)

    starts = [entry.subject for entry in stack.log.entries if entry.type == "job.started"][2:]
    places = [starts.index(job) for job in low]
    for before, after in zip([-1, *places], places, strict=False):
        assert 5 <= after - before <= 20  # 2 B is ten jobs of 0.1 s, give or take what an estimate is off
    assert not all(map(stack.log.has_ended, high))
    for job in high:
        await stack.cancel(job)
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_high_job_starts_on_whichever_busy_device_is_free_first(stack: Stack) -> None:
    """Field case 19: neither what was reserved before it nor the choice of one device keeps it waiting."""
    for seconds in (4.0, 4.6):
        await stack.wait_for(await stack.submit("slow", {"steps": 20, "step_s": seconds / 20}), "job.started")
    low = [await stack.submit("noop", priority="low") for _ in range(2)]

    high = await stack.submit("noop", priority="high")
    await stack.wait_for_ends()

    starts = [entry.subject for entry in stack.log.entries if entry.type == "job.started"]
    assert starts.index(high) == 2
    assert sorted(starts[3:]) == sorted(low)
    await stack.audit()


def most_at_once(entries: list[Entry], jobs: set[str]) -> int:
    """Return how many of the jobs were in flight at most: from the first offer to the end of the attempt."""
    offers: dict[str, set[str]] = {job: set() for job in jobs}
    running: set[str] = set()
    most = 0
    for entry in entries:
        job, event = entry.subject, entry.event()
        if job not in jobs:
            continue
        match event:
            case ev.JobAssigned(offer_id=offer):
                offers[job].add(offer)
            case ev.JobUnassigned(offer_id=offer):
                offers[job].discard(offer)
            case ev.JobStarted():
                offers[job].clear()
                running.add(job)
            case _ if entry.type in ENDS or isinstance(event, ev.JobAttemptFailed | ev.JobQueued):
                offers[job].clear()
                running.discard(job)
        most = max(most, len(running | {name for name, held in offers.items() if held}))
    return most

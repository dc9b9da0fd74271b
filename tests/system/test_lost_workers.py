"""What becomes of jobs whose worker or child dies, is frozen, or only looks dead."""

import asyncio
import signal

import pytest

from contracts.positions import entry_ms
from contracts.store import keys
from tests.harness import Fragile, Stack
from tests.harness.recorder import recorded
from tests.harness.up import LEASE_S
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

ONE_SECOND = {
    "HEADRACE_WORKER__LEASE_S": "1",
    "HEADRACE_WORKER__HEARTBEAT_S": "0.2",
    "HEADRACE_SCHEDULER__LEASE_S": "1",
    "HEADRACE_SCHEDULER__TICK_S": "0.2",
}


async def test_late_writes_of_a_frozen_worker_are_refused_after_the_takeover(stack: Stack) -> None:
    """And what the log says of each moment of it, of jobs that are cancelled, fail and run again beside it, is what was
    shown then. In full, with kills: `test_past`.
    """
    async with recorded(stack, seed=1) as recorder:
        job = await stack.submit("slow", {"steps": 100, "step_s": 0.05})
        await stack.wait_for(job, "job.progress")
        supervisor = await stack.worker_of(job)

        supervisor.send(signal.SIGSTOP)
        later = await stack.submit("noop", runAt=stack.later(3600))
        await stack.cancel(later)
        assert (await stack.request("POST", f"/v1/jobs/{later}/retry")).status == 202
        await stack.submit("fails", policy={"maxAttempts": 2})
        again = await stack.wait_for(job, "job.started", count=2)
        supervisor.send(signal.SIGCONT)
        await stack.wait_for_ends()

    assert recorder.compare_states(200) > 20
    assert await recorder.compare_views(30) > 10

    rest = [entry for entry in stack.log.of(job) if entry.sequence > again.sequence]
    assert {entry.fence for entry in rest} == {2}  # job.event_rejected carries the fence of the new owner, too
    assert [entry.type for entry in rest if entry.type == "job.completed"] == ["job.completed"]
    assert len([entry for entry in rest if entry.type == "job.event_rejected"]) <= 1
    await stack.submit("noop")
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_write_that_was_on_its_way_when_its_worker_froze_is_refused(fragile: Fragile) -> None:
    """It arrives when the next attempt has written nothing yet, so that only the fence tells the two apart."""
    successor = fragile.processes("gpu_worker")[0]
    successor.send(signal.SIGSTOP)
    await fragile.log.wait_for_any("worker.lost")

    async with fragile.other_way() as way:
        late = way.hold_requests(b"hr_emit")
        frozen = fragile.spawn("gpu_worker", HEADRACE_REDIS__URL=way.url)
        job = await fragile.submit("slow", {"steps": 5, "step_s": 0.05})
        await asyncio.wait_for(late.met.wait(), 20)
        frozen.send_signal(signal.SIGSTOP)
        await fragile.log.wait_until(
            lambda: len([entry for entry in fragile.log.entries if entry.type == "worker.lost"]) == 2, "it is lost"
        )
        first_of_successor = fragile.proxy.hold_requests(b"hr_emit")
        successor.send(signal.SIGCONT)
        await asyncio.wait_for(first_of_successor.met.wait(), 20)
        late.lift()
        await asyncio.wait_for(late.answered.wait(), 20)
        first_of_successor.lift()
        assert await fragile.wait_for_ends() == ["job.completed"]

        again = fragile.log.of(job, "job.started")[1]
        later = [entry for entry in fragile.log.of(job) if entry.sequence > again.sequence]
        assert (again.fence, later[0].type) == (2, "job.event_rejected")
        assert [entry.type for entry in later].count("job.event_rejected") == 1
        assert later[-1].type == "job.completed"
        await fragile.audit()


async def test_a_healthy_worker_keeps_long_jobs_whatever_they_do_to_their_process(fragile: Fragile) -> None:
    """Field cases 35, 40, 43 and 46: three leases of sleep in C with the interpreter lock held, of ordinary work, and a
    delayed job due after as long: one start each, and no lease is lost.
    """
    held = await fragile.submit("hang_gil", {"seconds": 3})
    long = await fragile.submit("slow", {"steps": 80, "step_s": 0.05})
    delayed = await fragile.submit("noop", runAt=fragile.later(4))

    await fragile.wait_for_ends()

    for job in (held, long, delayed):
        assert len(fragile.log.of(job, "job.started", "job.lease_lost", "job.attempt_failed")) == 1
    started_ms = entry_ms(fragile.log.of(delayed, "job.started")[0].position)
    assert started_ms - entry_ms(fragile.log.of(delayed, "job.created")[0].position) >= 3_900
    assert [entry for entry in fragile.log.entries if entry.type == "worker.lost"] == []
    work = [key async for key in fragile.store.client.scan_iter(keys.work("default", "*"))]
    assert [await fragile.store.client.xlen(key) for key in work] == [0]
    await fragile.audit()


async def test_a_job_that_loses_its_workers_until_no_attempt_is_left_fails_as_worker_lost(stack: Stack) -> None:
    """Field case 36: each lost lease is an event, also the last one."""
    job = await stack.submit("slow", {"steps": 200, "step_s": 0.05}, policy={"maxAttempts": 2})
    for attempt in (1, 2):
        await stack.wait_for(job, "job.started", count=attempt)
        (await stack.worker_of(job)).send(signal.SIGKILL)

    assert await stack.wait_for_ends() == ["job.failed"]

    lost = [entry.raw_data()["attempt"] for entry in stack.log.of(job, "job.lease_lost")]
    failed = stack.log.of(job, "job.failed")[0].raw_data()
    assert lost == [1, 2]
    assert (failed["error"]["code"], failed["attempts"]) == ("worker_lost", 2)  # type: ignore[index]
    assert (await stack.get(job))["error"]["code"] == "worker_lost"
    await stack.audit()


async def test_a_job_that_kills_its_processes_is_set_aside_and_takes_nobody_with_it(stack: Stack) -> None:
    """Field cases 37 and 44: a death counts as an attempt; after two the job is poison, the others run."""
    bad = await stack.submit("crash", {"how": 139})
    healthy = [await stack.submit("noop") for _ in range(5)]
    workers = {process.pid for process in stack.processes("gpu_worker")}

    await stack.wait_for_ends()

    failed = stack.log.of(bad, "job.failed")[0].raw_data()
    assert failed["error"]["code"] == "poison"  # type: ignore[index]
    assert len(stack.log.of(bad, "job.started")) == 2
    assert {stack.log.of(job)[-1].type for job in healthy} == {"job.completed"}
    assert {process.pid for process in stack.processes("gpu_worker")} == workers
    assert (await stack.get(bad))["deadLettered"] is True
    await stack.audit()


async def test_a_dead_idle_worker_is_given_nothing_for_longer_than_a_lease(fragile: Fragile) -> None:
    """Field case 39: the live worker runs all; an offer made to the dead one comes back."""
    dead = fragile.spawn("gpu_worker")
    registered = await fragile.log.wait_for_any("worker.registered", pid=dead.pid)
    dead.kill()

    jobs = [await fragile.submit("noop") for _ in range(20)]
    await fragile.wait_for_ends()
    lost = await fragile.wait_for(registered.subject, "worker.lost")

    for job in jobs:
        first, last = fragile.log.of(job)[0], fragile.log.of(job)[-1]
        assert last.type == "job.completed"
        assert entry_ms(last.position) - entry_ms(first.position) < (LEASE_S + 2) * 1000
    assert registered.subject not in await fragile.store.workers("default")
    assert not await fragile.store.client.exists(keys.work("default", registered.subject))  # field case 122
    assert entry_ms(lost.position) - entry_ms(registered.position) < (LEASE_S + 2.5) * 1000
    await fragile.audit()


async def test_waiting_jobs_are_not_read_ahead_by_a_busy_worker(fragile: Fragile) -> None:
    """Field case 42: one runs, one is on deck, and a worker that joins has the next one within a second."""
    first = await fragile.submit("slow", {"steps": 200, "step_s": 0.05})
    await fragile.wait_for(first, "job.started")
    waiting = [await fragile.submit("noop") for _ in range(3)]
    await fragile.wait_for(waiting[0], "job.assigned")
    offers = [entry.subject for entry in fragile.log.entries if entry.type == "job.assigned"]

    second = fragile.spawn("gpu_worker")
    joined = await fragile.log.wait_for_any("worker.registered", pid=second.pid)
    started = await fragile.log.wait_for_any("job.started", workerId=joined.subject)

    assert offers == [first, waiting[0]]
    assert entry_ms(started.position) - entry_ms(joined.position) < 1_000
    await fragile.cancel(first)
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_a_short_job_is_taken_over_by_its_lease_and_not_by_the_longest_time_limit(stack: Stack) -> None:
    """Field case 47: a neighbour that may run for three days changes nothing."""
    await stack.submit("noop", policy={"executionTimeoutSeconds": 3 * 86_400})
    short = await stack.submit("slow", {"steps": 20, "step_s": 0.05}, policy={"executionTimeoutSeconds": 5})
    await stack.wait_for(short, "job.started")
    (await stack.worker_of(short)).send(signal.SIGKILL)
    killed_ms = entry_ms(stack.log.of(short)[-1].position)

    again = await stack.wait_for(short, "job.started", count=2)

    assert entry_ms(again.position) - killed_ms < (LEASE_S + 2) * 1000
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_worker_that_dies_before_its_first_heartbeat_loses_its_jobs_like_any_other(fragile: Fragile) -> None:
    """Field case 49: killed right after the assignment or the start, when no heartbeat ever named the job."""
    fragile.signal("gpu_worker", signal.SIGSTOP)
    await fragile.log.wait_for_any("worker.lost")
    for seen in ("job.assigned", "job.started"):
        doomed = fragile.spawn("gpu_worker", HEADRACE_WORKER__HEARTBEAT_S="600", HEADRACE_WORKER__LEASE_S="1200")
        registered = await fragile.log.wait_for_any("worker.registered", pid=doomed.pid)
        await fragile.submit("slow", {"steps": 2, "step_s": 0.05})
        await fragile.log.wait_for_any(seen, workerId=registered.subject)
        doomed.kill()
        lost = await fragile.wait_for(registered.subject, "worker.lost")
        assert entry_ms(lost.position) - entry_ms(registered.position) < 4_000
    fragile.signal("gpu_worker", signal.SIGCONT)
    assert await fragile.wait_for_ends() == ["job.completed", "job.completed"]
    await fragile.audit()


async def test_a_running_job_survives_a_restart_of_everything_around_it(stack: Stack) -> None:
    """Field case 48: scheduler, ingest and notifier are replaced in the middle of a job; there is no second copy."""
    job = await stack.submit("slow", {"steps": 60, "step_s": 0.05})
    await stack.wait_for(job, "job.progress")

    for service in ("scheduler", "ingest", "notifier"):
        stack.kill(service)

    assert await stack.wait_for_ends() == ["job.completed"]
    assert len(stack.log.of(job, "job.started", "job.lease_lost")) == 1
    await stack.wait_ready()
    await stack.audit()


async def test_memory_that_is_refused_ends_an_attempt_and_not_the_worker(start_stack: Starter) -> None:
    """Field case 44: the slice of a simulated device is a hard limit; the job ends failed with a code that says so."""
    stack = await start_stack(devices="sim:128MiB*1")
    greedy = await stack.submit("oom", {"mib": 1024}, policy={"maxAttempts": 2})
    modest = await stack.submit("noop")

    ends = await asyncio.gather(stack.wait_for_ends(greedy), stack.wait_for_ends(modest))

    failed = stack.log.of(greedy, "job.failed")[0].raw_data()
    assert ends == [["job.failed"], ["job.completed"]]
    assert failed["error"]["code"] in ("out_of_memory", "too_large")  # type: ignore[index]
    await stack.audit()

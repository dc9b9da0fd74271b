"""Clocks of a job: start-by, run-for, run-at; and hosts whose clocks are wrong."""

import asyncio
from pathlib import Path

import pytest

from contracts.positions import entry_ms
from tests.harness import Fragile, Stack
from tests.notifier.receiver import Receiver, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

SKEWED_CLOCK = Path(__file__).parent / "skewed_clock"


async def test_waiting_jobs_expire_on_time_while_the_slots_are_busy(stack: Stack) -> None:
    """Field cases 56 and 58: 300 of them, each less than a second after its start-by, not when a running job ends."""
    busy = [await stack.submit("slow", {"steps": 400, "step_s": 0.05}) for _ in range(2)]
    for job in busy:
        await stack.wait_for(job, "job.started")
    async with Receiver([answer(200)]) as receiver:
        told = await stack.submit("noop", policy={"startBySeconds": 1}, webhookUrl=receiver.url())

        waiting = await asyncio.gather(*(stack.submit("noop", policy={"startBySeconds": 1}) for _ in range(300)))
        ends = await stack.wait_for_ends(told, *waiting)

        await receiver.wait_for_requests(1)
    assert set(ends) == {"job.expired"}
    for job in waiting:
        assert stack.log.of(job, "job.started") == []
    for job in (told, *waiting):
        (expired,) = stack.log.of(job, "job.expired")
        late_ms = entry_ms(expired.position) - int(str(expired.raw_data()["startByAtMs"]))
        assert 0 <= late_ms < 1_000
        assert stack.log.ms_between(job, "job.created", "job.expired") == 1_000 + late_ms
    assert b"job.expired" in receiver.requests[0].body
    for job in busy:
        await stack.cancel(job)
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_job_that_swallows_everything_is_killed_when_its_run_time_is_over(stack: Stack) -> None:
    """Field case 56: the clock starts with the run and not with the submit; the retry rule applies."""
    blockers = [await stack.submit("slow", {"steps": 30, "step_s": 0.05}) for _ in range(2)]
    stubborn = await stack.submit(
        "ignores_cancel", {"term": True}, policy={"executionTimeoutSeconds": 1, "maxAttempts": 2}
    )

    await stack.wait_for_ends()

    failures = [entry.raw_data() for entry in stack.log.of(stubborn, "job.attempt_failed")]
    assert [failure["error"]["code"] for failure in failures] == ["execution_timeout"] * 2  # type: ignore[index]
    assert stack.log.ms_between(stubborn, "job.created", "job.started") > 1_000
    starts, ends = stack.log.of(stubborn, "job.started"), stack.log.of(stubborn, "job.attempt_failed")
    for start, end in zip(starts, ends, strict=True):
        assert 950 <= entry_ms(end.position) - entry_ms(start.position) < 4_000
    assert stack.log.of(stubborn)[-1].type == "job.failed"
    assert {stack.log.of(job)[-1].type for job in blockers} == {"job.completed"}
    await stack.audit()


async def test_a_job_that_hangs_with_its_lease_renewed_is_ended_by_a_limit(stack: Stack) -> None:
    """Field case 57: every job has a longest run time, if only its model's; the next job has the slot."""
    hanging = [await stack.submit("hang", policy={"executionTimeoutSeconds": 1, "maxAttempts": 1}) for _ in range(2)]
    unlimited = await stack.submit("noop")

    assert await stack.wait_for_ends() == ["job.failed", "job.failed", "job.completed"]

    assert stack.log.of(unlimited, "job.created")[0].raw_data()["timeoutMs"] == 60_000
    for job in hanging:
        assert stack.log.of(job, "job.lease_lost") == []
    await stack.audit()


async def test_a_delayed_job_starts_when_it_is_due_and_once(stack: Stack) -> None:
    """Field case 43, for delays shorter than a lease; the longer ones are in test_lost_workers."""
    jobs = [await stack.submit("noop", runAt=stack.later(1)) for _ in range(20)]

    await stack.wait_for_ends()

    for job in jobs:
        assert len(stack.log.of(job, "job.started")) == 1
        assert 900 <= stack.log.ms_between(job, "job.created", "job.started") < 4_000
    await stack.audit()


async def test_workers_whose_clocks_are_wrong_change_no_time_in_the_log(fragile: Fragile) -> None:
    """Field case 130: two minutes ahead and two behind; leases, retries and durations follow the store's clock."""
    for offset_s in ("120", "-120"):
        worker = fragile.spawn(
            "gpu_worker", PYTHONPATH=f"{SKEWED_CLOCK}:{fragile.python_path}", CLOCK_OFFSET_S=offset_s
        )
        await fragile.log.wait_for_any("worker.registered", pid=worker.pid)

    jobs = [await fragile.submit("slow", {"steps": 10, "step_s": 0.05}) for _ in range(9)]
    failing = [await fragile.submit("fails", policy={"maxAttempts": 2}) for _ in range(6)]
    await fragile.wait_for_ends()

    workers = {entry.raw_data()["workerId"] for entry in fragile.log.entries if entry.type == "job.started"}
    assert len(workers) == 3
    assert {fragile.log.of(job)[-1].type for job in jobs} == {"job.completed"}
    for job in jobs:
        shown = (await fragile.get(job))["timings"]
        assert all(0 <= value < 60_000 for name, value in shown.items() if value is not None), shown
    for job in failing:
        first, second = (entry_ms(entry.position) for entry in fragile.log.of(job, "job.started"))
        due_ms = fragile.log.of(job, "job.attempt_failed")[0].raw_data()["nextAttemptAtMs"]
        assert isinstance(due_ms, int)
        assert 150 <= due_ms - first < 10_000  # decided on the store's clock by a worker whose own is wrong
        assert 0 <= second - due_ms < 10_000  # and never started before
    assert [entry for entry in fragile.log.entries if entry.type in ("worker.lost", "job.lease_lost")] == []
    await fragile.audit()

"""Cancelling a job in every state it can be in, at the worst moments."""

import asyncio
import random
import signal
from typing import Any

import pytest

from contracts.positions import entry_ms
from tests.harness import Fragile, Stack

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_cancel_works_in_every_state_and_says_the_same_twice(stack: Stack) -> None:
    """Field case 52: queued, delayed, on deck, running, between attempts, ended, unknown."""
    # steps so long that a cancel is answered before the next one ends
    running = [await stack.submit("slow", {"steps": 20, "step_s": 0.9}) for _ in range(2)]
    for job in running:
        await stack.wait_for(job, "job.started")
    on_deck = [await stack.submit("noop") for _ in range(2)]
    for job in on_deck:
        await stack.wait_for(job, "job.assigned")
    queued = await stack.submit("noop", priority="low")
    delayed = await stack.submit("noop", runAt=stack.later(3600))

    for job in (queued, delayed, *on_deck):
        assert [(await stack.cancel(job)).status for _ in range(2)] == [200, 200]
        assert (await stack.get(job))["status"] == "cancelled"
    for job in running:
        assert (await stack.cancel(job)).status == 202
        assert (await stack.cancel(job)).status in (202, 200)  # it may have stopped meanwhile
        await stack.wait_for(job, "job.cancelled")
        assert stack.log.ms_between(job, "job.cancel_requested", "job.cancelled") < 2_000
        assert (await stack.cancel(job)).status == 200
    retrying = await stack.submit("fails", {"how": "retry"})
    await stack.wait_for(retrying, "job.attempt_failed")
    assert (await stack.cancel(retrying)).status == 200
    done = await stack.submit("noop")
    await stack.wait_for(done, "job.completed")
    assert [(await stack.cancel(done)).status for _ in range(2)] == [409, 409]
    assert (await stack.cancel(done[:-4] + "zz" + done[-2:])).status == 404
    assert [stack.log.of(job, "job.started") for job in (queued, delayed, *on_deck)] == [[]] * 4
    assert len(stack.log.of(retrying, "job.started")) == 1
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_running_job_stops_although_its_webhook_receiver_is_down(stack: Stack) -> None:
    """Field case 50: the slot goes to the next job at once; the webhook is the notifier's trouble alone."""
    jobs = [
        await stack.submit(
            "slow", {"steps": 400, "step_s": 0.05},
            webhookUrl="http://127.0.0.1:9/", webhookEvents=["job.started", "job.cancelled"],
        )
        for _ in range(2)
    ]  # fmt: skip
    for job in jobs:
        await stack.wait_for(job, "job.started")
    following = await stack.submit("noop")

    for job in jobs:
        assert (await stack.cancel(job)).status == 202
        await stack.wait_for(job, "job.cancelled")
        assert stack.log.ms_between(job, "job.cancel_requested", "job.cancelled") < 2_000

    assert await stack.wait_for_ends(following) == ["job.completed"]
    freed_ms = min(entry_ms(stack.log.of(job, "job.device_released", "job.cancelled")[0].position) for job in jobs)
    assert entry_ms(stack.log.of(following, "job.started")[0].position) - freed_ms < 500
    attempted = await stack.log.wait_for_any("webhook.attempted", jobId=jobs[0], eventType="job.cancelled")
    assert attempted.raw_data()["outcome"] != "delivered"
    assert attempted.raw_data()["nextAtMs"]
    await stack.audit()


async def test_a_cancel_gets_through_a_flood_of_output_and_progress(stack: Stack) -> None:
    """Field case 51: 5,000 progress reports a second and lines of 1 MB do not delay it; the slot waits for the end."""
    job = await stack.submit("chatty")
    await stack.wait_for(job, "job.progress", count=2)

    assert (await stack.cancel(job)).status in (202, 200)  # 200: it had stopped before the answer was written
    await stack.wait_for(job, "job.cancelled")

    assert stack.log.ms_between(job, "job.cancel_requested", "job.cancelled") < 2_000
    assert len(stack.log.of(job, "job.progress")) < 100
    await stack.submit("noop")
    await stack.wait_for_ends()
    await stack.audit()


async def test_jobs_cancelled_while_no_worker_was_there_never_run(fragile: Fragile) -> None:
    """Field case 53, first half: a cancel is a stored fact, not a message to somebody who is away."""
    fragile.signal("gpu_worker", signal.SIGSTOP)
    await fragile.log.wait_for_any("worker.lost")
    jobs = [await fragile.submit("noop") for _ in range(5)]

    cancelled = jobs[:3]
    assert [(await fragile.cancel(job)).status for job in cancelled] == [200] * 3
    fragile.signal("gpu_worker", signal.SIGCONT)

    assert await fragile.wait_for_ends() == ["job.cancelled"] * 3 + ["job.completed"] * 2
    assert [fragile.log.of(job, "job.started") for job in cancelled] == [[]] * 3
    await fragile.audit()


async def test_a_cancel_between_the_offer_and_the_start_keeps_author_code_from_running(fragile: Fragile) -> None:
    """Field case 53, second half: the start is on its way when the cancel is stored, and is refused."""
    on_its_way = fragile.proxy.hold_requests(b"hr_start")
    mark = fragile.folder / "ran"
    job = await fragile.submit("fails_once", {"marker": str(mark)})
    await asyncio.wait_for(on_its_way.met.wait(), 20)

    assert (await fragile.cancel(job)).status == 200
    on_its_way.lift()
    await fragile.submit("noop")

    assert await fragile.wait_for_ends() == ["job.cancelled", "job.completed"]
    assert fragile.log.of(job, "job.started") == []
    assert not mark.exists()
    await fragile.audit()


async def test_cancelling_what_has_just_ended_hurts_nobody(stack: Stack) -> None:
    """Field case 54: 409 or a real cancel, never a flag that hits a later job; the slots run on."""
    answers: list[int] = []

    async def cancel_at_the_end(number: int) -> None:
        job = await stack.submit("noop")
        await stack.wait_for(job, "job.completed" if number % 2 else "job.started")
        answers.append((await stack.cancel(job)).status)
        await stack.wait_for_ends(job)

    for start in range(0, 200, 20):
        await asyncio.gather(*(cancel_at_the_end(number) for number in range(start, start + 20)))
    later = [await stack.submit("noop") for _ in range(20)]

    assert await stack.wait_for_ends(*later) == ["job.completed"] * 20
    assert set(answers) <= {200, 202, 409}
    assert answers.count(409) >= 100
    await stack.audit()


async def test_a_storm_of_cancels_ends_every_job_once_and_slows_nobody_down(stack: Stack) -> None:
    """Field case 59, with 200 jobs: each is cancelled at about the time it ends."""

    async def seconds_for_fresh_jobs() -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        fresh = await asyncio.gather(*(stack.submit("slow", {"steps": 1, "step_s": 0.02}) for _ in range(30)))
        await stack.wait_for_ends(*fresh)
        return loop.time() - begun

    async def cancel_about_when_it_ends(job: str) -> int:
        await stack.wait_for(job, "job.started", limit_s=90)
        await stack.wait_for(
            job, *random.choice([("job.started",), ("prompt.encoded",), ("job.device_released", "job.completed")])
        )
        return (await stack.cancel(job)).status

    before_s = await seconds_for_fresh_jobs()
    workers = {process.pid for process in stack.processes("gpu_worker")}
    storm = await asyncio.gather(*(stack.submit("slow", {"steps": 2, "step_s": 0.02}) for _ in range(200)))

    statuses = await asyncio.gather(*(cancel_about_when_it_ends(job) for job in storm))
    ends = await stack.wait_for_ends(*storm)
    after_s = await seconds_for_fresh_jobs()

    assert set(statuses) <= {200, 202, 409}
    assert set(ends) <= {"job.completed", "job.cancelled"}
    assert {process.pid for process in stack.processes("gpu_worker")} == workers
    assert after_s < before_s * 1.25 + 1.5  # the last second and a half: other tests share the two cores
    await stack.audit()


async def test_clients_that_hang_up_change_nothing(stack: Stack) -> None:
    """Field case 55: 300 callers go away while they wait for their job, 100 in a GET; what was accepted runs once."""
    job = await stack.submit("slow", {"steps": 20, "step_s": 0.05})
    body = {"userId": "u", "prompt": "p", "model": "noop", "input": {}}

    def accepted() -> list[str]:
        return [entry.subject for entry in stack.log.entries if entry.type == "job.created"]

    async def hang_up(asked: "asyncio.Task[Any]", within_s: float) -> None:
        await asyncio.wait([asked], timeout=random.random() * within_s)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    asking = (stack.request("POST", "/v1/jobs", body, headers={"Prefer": "wait=30"}) for _ in range(300))
    waits = [asyncio.ensure_future(post) for post in asking]
    await asyncio.gather(*(hang_up(asyncio.ensure_future(stack.get(job)), 0.05) for _ in range(100)))
    await stack.log.wait_until(lambda: len(accepted()) > 100, "jobs of callers that wait")
    await asyncio.gather(*(hang_up(wait, 0.5) for wait in waits))
    last = await stack.submit("noop")

    assert await stack.wait_for_ends(job, last) == ["job.completed", "job.completed"]
    stack.jobs = accepted()
    assert set(await stack.wait_for_ends()) == {"job.completed"}
    await stack.audit()

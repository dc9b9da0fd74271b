"""Jobs that share a pass of run_batch(): each keeps its own start, cancel, end and webhook, and pays for nobody."""

import signal
from typing import Any

import orjson
import pytest

from tests.harness import Fragile
from tests.notifier.receiver import Receiver, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS = ("job.completed", "job.cancelled", "job.failed")
PACED = {"steps": 60, "step_s": 0.02}


async def together(fragile: Fragile, *inputs: dict[str, Any], **fields: object) -> list[str]:
    """Let jobs wait until all of them are there, so that one turn chooses among them."""
    await fragile.admin("POST", "/models/batch/pause", {"reason": "story"})
    await fragile.log.wait_for_any("policy.applied", pausedModels=["batch"])
    jobs = [await fragile.submit("batch", one, **fields) for one in inputs]
    await fragile.admin("POST", "/models/batch/resume", {"reason": "story"})
    return jobs


async def result(fragile: Fragile, job: str) -> Any:
    """Return what the pipeline returned for a job."""
    return (await fragile.request("GET", f"/v1/jobs/{job}/result")).json


def passes(fragile: Fragile, job: str) -> list[str | None]:
    """Return the batch of each start of a job."""
    return [entry.raw_data().get("batch") for entry in fragile.log.of(job, "job.started")]


async def test_one_of_a_pass_is_cancelled_another_fails_and_every_member_has_its_own_end(fragile: Fragile) -> None:
    """Field case 52 for batches: a cancel ends its job at the next step, and nobody else's."""
    async with Receiver([answer(200)]) as receiver:
        hooked = {"webhookUrl": receiver.url(), "webhookEvents": ["job.started", *ENDS]}
        jobs = good, cancelled, _, other = await together(fragile, PACED, {}, {"how": "reject"}, {}, **hooked)
        await fragile.wait_for(cancelled, "job.progress")

        assert (await fragile.cancel(cancelled)).status in (202, 200)  # 200: it has stopped by now
        await fragile.wait_for(cancelled, "job.cancelled")
        assert fragile.log.ms_between(cancelled, "job.cancel_requested", "job.cancelled") < 1_000
        assert not fragile.log.of(good, "job.completed")

        ends = await fragile.wait_for_ends(*jobs)
        await receiver.wait_for_requests(8)
    assert ends == ["job.completed", "job.cancelled", "job.failed", "job.completed"]
    (batch,) = {batch for job in jobs for batch in passes(fragile, job)}
    assert batch is not None
    assert [(await fragile.get(job))["attempt"] for job in jobs] == [1, 1, 1, 1]
    assert [(await result(fragile, job))["result"] for job in (good, other)] == [
        {"size": 4, "number": 0}, {"size": 4, "number": 3},
    ]  # fmt: skip
    bodies = [orjson.loads(request.body) for request in receiver.requests]
    assert sorted((body["jobId"], body["type"]) for body in bodies) == sorted(
        (job, event) for job, end in zip(jobs, ends, strict=True) for event in ("job.started", end)
    )
    shares = [fragile.log.of(job, "job.device_released")[0].raw_data()["gpuMs"] for job in jobs]
    assert min(shares[0], shares[3]) > shares[1]  # who left early was in it for less
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_the_jobs_of_a_pass_whose_child_is_killed_end_one_by_one_at_their_first_attempt(fragile: Fragile) -> None:
    """Field case 62 for batches: kill -9 of the child is nobody's fault, and costs nobody an attempt."""
    jobs = await together(fragile, PACED, {}, {})
    await fragile.wait_for(jobs[-1], "job.progress")

    for child in fragile.children():
        child.send(signal.SIGKILL)

    assert await fragile.wait_for_ends(*jobs) == ["job.completed"] * 3
    for job in jobs:
        handed_back = fragile.log.of(job, "job.queued")[-1].raw_data()
        assert (handed_back["reason"], handed_back["attempt"], handed_back["alone"]) == ("handed_back", 0, True)
        assert passes(fragile, job)[0] is not None
        assert passes(fragile, job)[1:] == [None]
        assert (await fragile.get(job))["attempt"] == 1
        assert (await result(fragile, job))["result"] == {"size": 1}
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_a_job_alone_starts_at_once_though_its_model_takes_batches(fragile: Fragile) -> None:
    """Nobody is held back until a batch is full: no other job ever comes."""
    job = await fragile.submit("batch")

    assert await fragile.wait_for_ends(job) == ["job.completed"]

    assert passes(fragile, job) == [None]
    assert fragile.log.ms_between(job, "job.created", "job.assigned") < 500
    await fragile.audit()

"""The store is at its memory limit: nothing new comes in, and everything that runs gets out."""

import asyncio

import pytest

from tests.harness import Fragile, Stack, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fill(stack: Stack) -> None:
    """Lower the limit to less than what is used now, so that every write that may be refused is refused."""
    used = int((await stack.store.client.info("memory"))["used_memory"])
    await stack.store.client.config_set("maxmemory", used * 9 // 10)


async def test_running_jobs_settle_in_a_full_store_and_new_ones_are_refused(fragile: Fragile) -> None:
    """Field case 125: 503 `storage_full`, no half job; after the limit is raised everything goes on, nothing twice."""
    running = [await fragile.submit("slow", {"steps": 30, "step_s": 0.05}) for _ in range(2)]
    for job in running:
        await fragile.wait_for(job, "job.progress")
    waiting = [await fragile.submit("noop") for _ in range(4)]
    failing = await fragile.submit("fails", policy={"maxAttempts": 2})

    await fill(fragile)

    async def refused() -> bool:
        answer = await fragile.post_job("noop", again="one-of-many")
        return answer.status == 503 and answer.json["code"] == "storage_full"

    await eventually(refused, "POST is refused as storage_full")
    refusals = await asyncio.gather(*(fragile.post_job("noop", again=f"key-{number}") for number in range(20)))
    ends = dict(zip(fragile.jobs, await fragile.wait_for_ends(), strict=True))
    created = {entry.subject for entry in fragile.log.entries if entry.type == "job.created"}
    await fragile.store.client.config_set("maxmemory", 0)

    async def accepted() -> bool:
        answer = await fragile.post_job("noop", again="key-0")
        if answer.status != 201:
            return False
        fragile.jobs.append(answer.json["id"])
        return True

    await eventually(accepted, "POST is accepted again")
    assert {answer.status for answer in refusals} == {503}
    assert {answer.json["code"] for answer in refusals} == {"storage_full"}
    assert all("Retry-After" in answer.headers for answer in refusals)
    assert {ends[job] for job in (*running, *waiting)} == {"job.completed"}
    assert ends[failing] == "job.failed"
    assert created == set(ends)
    await fragile.wait_for_ends()
    for job in (*running, *waiting):
        assert len(fragile.log.of(job, "job.started")) == 1
    await fragile.audit()

"""Callers whose answer was lost, and keys that are used again at every stage of a job's life."""

import asyncio

import pytest

from tests.harness import Answer, Proxy, Stack, eventually
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_answer_that_was_cut_off_is_found_again_by_key_and_by_reference(stack: Stack) -> None:
    """Field case 3: the caller's connection dies after the POST was carried out; nothing runs twice."""
    edge = Proxy(int(stack.ready["url"].rpartition(":")[2]))
    await edge.open()
    lost = edge.hold_replies(b"POST /v1/jobs")
    posting = asyncio.create_task(stack.post_job("noop", again="mine", url=edge.url, metadata={"cart": "9"}))
    created = await stack.log.wait_for_any("job.created")
    edge.cut()
    assert isinstance((await asyncio.gather(posting, return_exceptions=True))[0], Exception)
    await edge.close()
    assert lost.met.is_set()

    repeated = await stack.post_job("noop", again="mine", metadata={"cart": "9"})
    listed = await stack.request("GET", "/v1/jobs?metadata.cart=9")

    assert (repeated.status, repeated.headers["Idempotent-Replayed"]) == (200, "true")
    assert repeated.json["id"] == created.subject
    assert [job["id"] for job in listed.json["data"]] == [created.subject]
    stack.jobs = [created.subject]
    assert await stack.wait_for_ends() == ["job.completed"]
    assert len(stack.log.of(created.subject, "job.started")) == 1
    await stack.audit()


async def test_a_key_names_one_job_for_as_long_as_it_is_kept(start_stack: Starter) -> None:
    """Field case 9: while queued, after success, after failure, with another body, and after the job is forgotten.

    Field case 4: a forgotten job is never called finished; an unknown id and another tenant's look alike.
    """
    stack = await start_stack(settings={
        "HEADRACE_RETENTION__COMPLETED_S": "0", "HEADRACE_RETENTION__FAILED_S": "3600",
        "HEADRACE_ARCHIVE__SEAL_S": "1", "HEADRACE_ARCHIVE__SETTLE_S": "0",  # only what is archived is forgotten
    })  # fmt: skip
    blocker = await stack.submit("slow", {"steps": 20, "step_s": 0.05})
    await stack.wait_for(blocker, "job.started")

    first = await stack.post_job("noop", again="a")
    queued = await stack.post_job("noop", again="a")
    other_body = await stack.post_job("noop", {"n": 2}, again="a")
    failing = await stack.post_job("fails", again="b", policy={"maxAttempts": 1})
    stack.jobs += [first.json["id"], failing.json["id"]]
    await stack.wait_for_ends()
    failed = await stack.post_job("fails", again="b", policy={"maxAttempts": 1})

    async def shown(job_id: str) -> Answer:
        return await stack.request("GET", f"/v1/jobs/{job_id}")

    async def forgotten() -> Answer | None:
        answer = await shown(first.json["id"])
        return answer if answer.status in (404, 410) else None

    gone = await eventually(forgotten, "the completed job is forgotten")
    foreign = (await stack.post_job("noop", key=await stack.make_tenant(), runAt=stack.later(3600))).json["id"]
    others = [await shown(foreign[:10] + "0" * 10 + foreign[20:]), await shown(foreign)]
    late = await stack.post_job("noop", again="a")

    assert [answer.status for answer in (first, queued, failed, late)] == [201, 200, 200, 200]
    assert queued.json["id"] == late.json["id"] == first.json["id"]
    assert (failed.json["id"], failed.json["status"]) == (failing.json["id"], "failed")
    assert (other_body.status, other_body.json["code"]) == (422, "idempotency_mismatch")
    assert gone.json["status"] == gone.status
    bodies = [{**answer.json, "requestId": "", "instance": ""} for answer in others]
    assert [answer.status for answer in others] == [404, 404]
    assert bodies[0] == bodies[1]
    assert len([entry for entry in stack.log.entries if entry.type == "job.created"]) == 4


async def test_two_tenants_with_one_key_have_two_jobs(stack: Stack) -> None:
    """Field case 10."""
    other = await stack.make_tenant()

    mine, theirs = await stack.post_job("noop", again="k"), await stack.post_job("noop", again="k", key=other)

    assert (mine.status, theirs.status) == (201, 201)
    assert mine.json["id"] != theirs.json["id"]
    stack.jobs = [mine.json["id"], theirs.json["id"]]
    await stack.wait_for_ends()
    await stack.audit()

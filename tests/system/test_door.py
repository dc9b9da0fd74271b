"""What comes in and what is refused, with everything behind the door running."""

import asyncio
import statistics

import pytest

from tests.harness import Answer
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_flood_is_refused_in_time_and_leaves_no_trace(start_stack: Starter) -> None:
    """Field case 5: the limits of tenant and pool are exact; refusals are quick, others are still served."""
    limits = {"HEADRACE_ADMISSION__TENANT_JOBS": "100", "HEADRACE_ADMISSION__POOL_JOBS": "150"}
    stack = await start_stack(settings=limits)
    other = await stack.make_tenant()
    loop = asyncio.get_running_loop()
    times_s: list[float] = []

    async def post(key: str) -> Answer:
        begun = loop.time()
        answer = await stack.post_job("noop", key=key, runAt=stack.later(3600))
        if answer.status != 201:
            times_s.append(loop.time() - begun)
        return answer

    async def flood(key: str, count: int) -> list[Answer]:
        answers: list[Answer] = []
        for _ in range(count // 4):
            answers += await asyncio.gather(*(post(key) for _ in range(4)))
        return answers

    greedy = await flood(stack.key, 400)
    polite = await flood(other, 60)

    for answers, accepted, status, code in ((greedy, 100, 429, "quota_exceeded"), (polite, 50, 503, "queue_full")):
        assert [answer.status for answer in answers].count(201) == accepted
        refused = [answer for answer in answers if answer.status != 201]
        assert {(answer.status, answer.json["code"]) for answer in refused} == {(status, code)}
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
    assert statistics.median(times_s) < 0.05
    assert len([entry for entry in stack.log.entries if entry.type == "job.created"]) == 150
    ids = [answer.json["id"] for answer in greedy if answer.status == 201]
    await asyncio.gather(*(stack.cancel(job) for job in ids))
    assert (await post(stack.key)).status == 201  # room again

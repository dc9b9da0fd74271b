"""Why is it waiting? Asked over HTTP of a whole stack, while it waits and until it does not."""

import signal
import time
from typing import Any

import pytest

from tests.harness import Stack
from tests.harness.tail import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def explain(stack: Stack, job_id: str) -> Any:
    answer = await stack.request("GET", f"/v1/jobs/{job_id}/explain")
    assert answer.status == 200
    return answer.json


async def until(stack: Stack, job_id: str, code: str) -> Any:
    """Ask until this reason comes first: the leader follows log and configuration within a moment."""

    async def says_so() -> bool:
        reasons = (await explain(stack, job_id))["reasons"]
        return bool(reasons) and reasons[0]["code"] == code

    await eventually(says_so, f"{code} is the reason")
    return await explain(stack, job_id)


async def test_a_waiting_job_says_where_it_stands_and_why_until_nothing_waits_any_more(stack: Stack) -> None:
    """Field cases 18 and 24 with whole processes: the reason is shown, and the age of the oldest falls to 0."""
    running = [await stack.submit("slow", {"steps": 30, "step_s": 0.05}) for _ in range(2)]
    for job_id in running:
        await stack.wait_for(job_id, "job.started")
    waiting = [await stack.submit("noop") for _ in range(4)]

    told = await until(stack, waiting[3], "fair_share")
    shown = await stack.get(waiting[3])
    assert [reason["code"] for reason in told["reasons"]] == ["fair_share"]
    assert (told["state"], told["ahead"], shown["queue"]["position"]) == ("queued", 3, 4)
    assert told["etaSeconds"] is not None
    assert shown["queue"]["etaSeconds"] <= told["etaSeconds"], "it never grows by itself"
    assert len(told["wouldRunOn"]) == 2

    assert (await stack.admin("POST", "/pools/default/pause", {"reason": "maintenance"})).status < 300
    paused = await until(stack, waiting[3], "pool_paused")
    assert paused["etaSeconds"] is None
    assert (await stack.admin("POST", "/pools/default/resume", {})).status < 300

    assert await stack.wait_for_ends() == ["job.completed"] * 6
    scaled = (await stack.admin("GET", "/pools/default/autoscale")).json
    assert (scaled["backlogJobs"], scaled["backlogSeconds"], scaled["oldestSeconds"]) == (0, 0, 0)
    metrics = await stack.http.get(stack.ready["url"] + "/metrics")
    assert 'headrace_queue_oldest_seconds{pool="default"} 0.0' in await metrics.text()
    await stack.audit()


async def test_a_leader_that_hangs_delays_nobody_for_long_and_is_named_as_the_reason(stack: Stack) -> None:
    stack.signal("scheduler", signal.SIGSTOP)
    job_id = await stack.submit("noop")
    begun = time.monotonic()
    told = await explain(stack, job_id)
    shown = [await stack.get(job_id) for _ in range(5)]
    took_s = time.monotonic() - begun
    stack.signal("scheduler", signal.SIGCONT)

    assert [reason["code"] for reason in told["reasons"]] == ["no_scheduler"]
    assert [job["queue"]["position"] for job in shown] == [None] * 5
    assert took_s < 1, "one of six waited"
    assert await stack.wait_for_ends() == ["job.completed"]
    await stack.audit()

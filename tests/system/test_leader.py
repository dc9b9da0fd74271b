"""The leader of a pool dies, is frozen, or loses the lead in the middle of a turn."""

import asyncio
import re
import signal

import pytest

from contracts.store import keys
from tests.harness import Fragile, Stack, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS_OF_ALL = {
    "scheduled": "job.completed",
    "queued": "job.completed",
    "cancelled while queued": "job.cancelled",
    "expired": "job.expired",
    "on deck": "job.completed",
    "running": "job.completed",
    "stopping": "job.cancelled",
    "between attempts": "job.failed",
    "completed": "job.completed",
}


async def jobs_in_every_state(stack: Stack) -> dict[str, str]:
    """Bring one job into each state a job can be in, on two slots; returns name -> job id."""
    jobs = {"completed": await stack.submit("noop")}
    await stack.wait_for_ends(jobs["completed"])
    jobs["between attempts"] = await stack.submit("fails", {"how": "retry"})  # 1 s between its attempts
    await stack.wait_for(jobs["between attempts"], "job.attempt_failed")
    jobs["running"] = await stack.submit("slow", {"steps": 60, "step_s": 0.05})
    jobs["stopping"] = await stack.submit("ignores_cancel", {"term": True})
    await stack.wait_for(jobs["running"], "job.started")
    await stack.wait_for(jobs["stopping"], "prompt.encoded", "job.progress", "job.started")
    jobs["on deck"] = await stack.submit("noop")
    await stack.wait_for(jobs["on deck"], "job.assigned")
    jobs["queued"] = await stack.submit("noop", priority="low")
    jobs["scheduled"] = await stack.submit("noop", runAt=stack.later(3))
    jobs["expired"] = await stack.submit("noop", priority="low", policy={"startBySeconds": 1})
    jobs["cancelled while queued"] = await stack.submit("noop", priority="low")
    await stack.cancel(jobs["cancelled while queued"])
    await stack.cancel(jobs["stopping"])
    return jobs


async def test_a_killed_leader_leaves_jobs_in_every_state_to_its_successor(stack: Stack) -> None:
    """Field cases 43 and 128: each job still reaches its one end, the delayed and the waiting ones included."""
    jobs = await jobs_in_every_state(stack)

    stack.kill("scheduler")

    ends = dict(zip(jobs, await stack.wait_for_ends(*jobs.values()), strict=True))
    assert ends["expired"] in ("job.expired", "job.completed")  # a slot may have come free within its second
    assert ends | {"expired": "job.expired"} == {name: ENDS_OF_ALL[name] for name in jobs}
    for name in ("scheduled", "running", "on deck", "queued"):
        assert len(stack.log.of(jobs[name], "job.started")) == 1, name
    await stack.audit()


async def test_a_turn_of_a_frozen_leader_is_refused_after_the_takeover(fragile: Fragile) -> None:
    """It is its first, and arrives before its successor's first: only the token tells the two apart."""
    (killed,) = fragile.kill("scheduler")
    leader = (
        await eventually(
            lambda: [p for p in fragile.processes("scheduler") if p.pid != killed], "the next one is there"
        )
    )[0]
    late = fragile.proxy.hold_requests(b"hr_turn")
    job = await fragile.submit("noop")
    await asyncio.wait_for(late.met.wait(), 20)
    leader.send(signal.SIGSTOP)
    token, turn = await lead_of(fragile)

    async with fragile.other_way() as way:
        first_of_successor = way.hold_requests(b"hr_turn")
        fragile.spawn("scheduler", HEADRACE_REDIS__URL=way.url)
        await asyncio.wait_for(first_of_successor.met.wait(), 20)
        late.lift()
        await asyncio.wait_for(late.answered.wait(), 20)
        successor, turn_after = await lead_of(fragile)
        first_of_successor.lift()
        await fragile.wait_for(job, "job.completed")
        leader.send(signal.SIGCONT)
        after = [await fragile.submit("noop") for _ in range(5)]
        await fragile.wait_for_ends()

        assert successor != token
        assert (turn, turn_after) == (b"0", b"0")
        for known in (job, *after):
            assert len(fragile.log.of(known, "job.assigned")) == 1
        assert leader.pid in [process.pid for process in fragile.processes("scheduler")]
        await fragile.audit()


async def lead_of(stack: Stack) -> tuple[bytes, bytes]:
    """Token of the leader and number of its last turn."""
    token, turn = await stack.store.client.hmget(keys.leader("default"), ["token", "turn"])
    return token, turn


async def test_a_slot_that_contradicts_the_log_turns_readiness_red_until_its_worker_is_another(
    fragile: Fragile,
) -> None:
    """The store says that a deck is filled of which the log says nothing: reported, counted, and mended as the runbook
    says.
    """
    listed = await fragile.request("GET", "/admin/v1/workers", key=fragile.ready["adminKey"])
    (worker,) = [each["id"] for each in listed.json["data"]]
    await fragile.store.client.hset(keys.worker("default", worker), "d0", "job_x offer_y")
    job = await fragile.submit("noop")

    async def red() -> bool:
        answer = await fragile.request("GET", "/readyz")
        return answer.status == 503 and answer.json["reason"].startswith("scheduler_mismatch: pool default has set 1")

    await eventually(red, "/readyz is red")
    assert await set_aside(fragile) == "1.0"
    fragile.kill("gpu_worker")
    await fragile.wait_ready()
    assert await fragile.wait_for_ends(job) == ["job.completed"]
    assert await set_aside(fragile) == "0.0"


async def set_aside(stack: Stack) -> str:
    """What the metrics say of it."""
    async with stack.http.get(stack.ready["url"] + "/metrics") as reply:
        found = re.search(r'^headrace_scheduler_aside{pool="default"} (\S+)$', await reply.text(), re.MULTILINE)
    assert found is not None
    return found[1]


async def test_a_frozen_leader_without_a_standby_turns_readiness_red(fragile: Fragile) -> None:
    """Field case 128: the scheduler stops alone, with everything else green; readiness must say so."""
    fragile.signal("scheduler", signal.SIGSTOP)

    async def red() -> bool:
        return (await fragile.request("GET", "/readyz")).status == 503

    await eventually(red, "/readyz is red")
    fragile.signal("scheduler", signal.SIGCONT)
    await fragile.wait_ready()
    await fragile.submit("noop")
    assert await fragile.wait_for_ends() == ["job.completed"]
    await fragile.audit()

"""SIGTERM: every service finishes or hands back what it holds, loses nothing, costs no attempt, and exits with 0."""

import asyncio
import signal

import pytest

from tests.harness import Fragile, Stack, eventually
from tests.notifier.receiver import Receiver, after, answer
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def exits_with_0(stack: Stack, service: str, limit_s: float = 20) -> None:
    """Wait until `up` says that the service ended with 0; it starts the next one by itself."""
    await eventually(lambda: f"{service} ended with" in stack.said(), f"{service} has ended", limit_s)
    assert f"{service} ended with 0;" in stack.said()


async def test_a_worker_finishes_what_it_can_within_its_drain_and_keeps_its_lease_until_then(fragile: Fragile) -> None:
    """Field cases 48 and 138: heartbeats go on while it drains, so nobody starts a second copy."""
    job = await fragile.submit("slow", {"steps": 36, "step_s": 0.05})
    await fragile.wait_for(job, "job.progress")

    fragile.signal("gpu_worker", signal.SIGTERM)
    await fragile.log.wait_for_any("worker.draining")
    waiting = await fragile.submit("noop")
    await fragile.wait_for_ends(job, waiting)

    await exits_with_0(fragile, "gpu_worker")
    first, second = fragile.log.of(job, "job.started"), fragile.log.of(waiting, "job.started")
    assert (len(first), len(second), fragile.log.of(job, "job.lease_lost")) == (1, 1, [])
    assert first[0].raw_data()["workerId"] != second[0].raw_data()["workerId"]
    await fragile.audit()


async def test_a_worker_hands_back_what_it_cannot_finish_at_no_cost_of_an_attempt(fragile: Fragile) -> None:
    """Field cases 42 and 138: the running job and the one on deck go to the next worker at once, as attempt 1."""
    running = await fragile.submit("slow", {"steps": 200, "step_s": 0.05}, policy={"maxAttempts": 1})
    await fragile.wait_for(running, "job.progress")
    on_deck = await fragile.submit("noop", policy={"maxAttempts": 1})
    await fragile.wait_for(on_deck, "job.assigned")

    fragile.signal("gpu_worker", signal.SIGTERM)

    handed_back = (await fragile.wait_for(running, "job.queued")).raw_data()
    assert (handed_back["reason"], handed_back["attempt"]) == ("handed_back", 0)
    await exits_with_0(fragile, "gpu_worker")
    again = await fragile.wait_for(running, "job.started", count=2)
    assert (again.raw_data()["attempt"], again.fence) == (1, 2)
    await fragile.cancel(running)
    assert await fragile.wait_for_ends() == ["job.cancelled", "job.completed"]
    assert fragile.log.of(running, "job.attempt_failed", "job.lease_lost") == []
    await fragile.audit()


async def test_a_failure_during_a_drain_is_recorded_as_a_failure(fragile: Fragile) -> None:
    """Field case 138: what fails while its worker drains must not come back as if nothing had happened."""
    job = await fragile.submit("slow", {"steps": 1, "step_s": 20}, policy={"maxAttempts": 1})
    await fragile.wait_for(job, "prompt.encoded")

    fragile.signal("gpu_worker", signal.SIGTERM)
    await fragile.log.wait_for_any("worker.draining")
    for child in fragile.children():
        child.send(signal.SIGKILL)

    assert await fragile.wait_for_ends() == ["job.failed"]
    await exits_with_0(fragile, "gpu_worker")
    await fragile.audit()


async def test_idle_workers_that_wait_for_work_end_at_once(fragile: Fragile) -> None:
    """Field case 116: shutdown and heartbeat are not tied to the return of a read that blocks."""
    workers = [fragile.spawn("gpu_worker") for _ in range(3)]
    for worker in workers:
        await fragile.log.wait_for_any("worker.registered", pid=worker.pid)

    await asyncio.gather(*(fragile.submit("noop") for _ in range(20)))  # others' entries wake blocked reads, too
    await fragile.wait_for_ends()

    for worker in workers:
        worker.send_signal(signal.SIGTERM)

    await eventually(lambda: all(worker.poll() is not None for worker in workers), "they have ended", 3)
    assert [worker.returncode for worker in workers] == [0, 0, 0]


async def test_ingest_answers_what_it_has_begun(fragile: Fragile) -> None:
    """Every job that was made durable was also answered with its id."""

    posts = [asyncio.create_task(fragile.post_job("noop")) for _ in range(100)]
    await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
    fragile.signal("ingest", signal.SIGTERM)
    answers = await asyncio.gather(*posts, return_exceptions=True)

    await exits_with_0(fragile, "ingest")
    fragile.jobs = [
        found.json["id"] for found in answers if not isinstance(found, BaseException) and found.status == 201
    ]
    await fragile.wait_for_ends()
    created = {entry.subject for entry in fragile.log.entries if entry.type == "job.created"}
    others = [found for found in answers if isinstance(found, BaseException) or found.status != 201]
    assert created == set(fragile.jobs), f"answers beside 201: {others[:5]}"
    await fragile.audit()


async def test_a_leader_gives_the_lead_away_at_once(start_stack: Starter) -> None:
    """Work goes on long before the lease would have ended."""
    stack = await start_stack(settings={"HEADRACE_SCHEDULER__LEASE_S": "60"})

    stack.signal("scheduler", signal.SIGTERM)
    await stack.submit("noop")

    assert await stack.wait_for_ends(limit_s=20) == ["job.completed"]
    await exits_with_0(stack, "scheduler")
    await stack.audit()


async def test_a_notifier_finishes_the_delivery_it_is_at(fragile: Fragile) -> None:
    slow = asyncio.Event()
    async with Receiver([after(slow, answer(200))]) as receiver:
        await fragile.submit("echo", webhookUrl=receiver.url(), webhookEvents=["job.completed"])
        await receiver.wait_for_requests(1)

        fragile.signal("notifier", signal.SIGTERM)
        asyncio.get_running_loop().call_later(0.5, slow.set)

        attempted = await fragile.log.wait_for_any("webhook.attempted")
        await exits_with_0(fragile, "notifier")
        assert attempted.raw_data()["status"] == 200
        assert len(receiver.requests) == 1
    assert await fragile.wait_for_ends() == ["job.completed"]
    await fragile.audit()


async def test_a_stack_stops_with_work_under_way_and_goes_on_when_it_is_started_again(start_stack: Starter) -> None:
    """One `up` after another on the same folder: what ran was handed back, what waited still waits."""
    stack = await start_stack(settings={"HEADRACE_WORKER__DRAIN_S": "0.3"})
    running = await stack.submit("slow", {"steps": 60, "step_s": 0.05}, policy={"maxAttempts": 1})
    waiting = await stack.submit("noop")
    await stack.wait_for(running, "job.progress")

    status = await asyncio.to_thread(stack.stop)
    left = stack.leftovers()
    await asyncio.to_thread(stack.start)

    assert (status, left) == (0, [])
    assert await stack.wait_for_ends(running, waiting) == ["job.completed", "job.completed"]
    await stack.audit()

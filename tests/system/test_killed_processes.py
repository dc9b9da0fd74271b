"""Each process is killed with SIGKILL at its worst moment; the verdict comes from the log."""

import asyncio
import signal

import pytest

from contracts.positions import entry_ms
from tests.harness import Fragile, Stack, eventually
from tests.harness.up import LEASE_S
from tests.notifier.receiver import Receiver, after, answer
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_post_whose_ingest_was_killed_before_it_answered_is_found_again_by_its_key(fragile: Fragile) -> None:
    unanswered = fragile.proxy.hold_replies(b"hr_admit")

    posting = asyncio.create_task(fragile.post_job("echo", again="the-key"))
    created = await fragile.log.wait_for_any("job.created")  # durable, and nobody was told
    fragile.kill("ingest")
    lost = (await asyncio.gather(posting, return_exceptions=True))[0]
    unanswered.lift()
    await fragile.wait_ready()
    repeated = await fragile.post_job("echo", again="the-key")

    assert isinstance(lost, Exception)
    assert (repeated.status, repeated.json["id"]) in [(200, created.subject), (201, created.subject)]
    fragile.jobs = [created.subject]
    assert await fragile.wait_for_ends() == ["job.completed"]
    assert [entry.subject for entry in fragile.log.entries if entry.type == "job.created"] == fragile.jobs
    await fragile.audit()


async def test_the_job_of_a_killed_supervisor_runs_again_within_a_lease_and_two_seconds(stack: Stack) -> None:
    """Field cases 38 and 40: attempt 2 on another worker or a restarted one; no failure for the crash alone."""
    job = await stack.submit(
        "slow", {"steps": 80, "step_s": 0.05}
    )  # outlasts what a busy machine takes to find whom to kill
    await stack.wait_for(job, "job.started")
    supervisor = await stack.worker_of(job)
    children = stack.children(supervisor.pid)

    supervisor.send(signal.SIGKILL)
    killed_ms = entry_ms(stack.log.of(job)[-1].position)
    again = await stack.wait_for(job, "job.started", count=2)

    assert entry_ms(again.position) - killed_ms < (LEASE_S + 2) * 1000
    assert again.raw_data()["attempt"] == 2
    assert await stack.wait_for_ends() == ["job.completed"]
    assert (await stack.get(job))["status"] == "completed"
    assert not {child.pid for child in children} & {child.pid for child in stack.children()}
    await stack.audit()


async def test_a_killed_child_costs_one_attempt_and_its_slot_takes_the_next_job(stack: Stack) -> None:
    job = await stack.submit("slow", {"steps": 20, "step_s": 0.05})
    await stack.wait_for(job, "job.started")
    supervisor = await stack.worker_of(job)
    await stack.wait_for(job, "prompt.encoded")

    busy = stack.children(supervisor.pid)
    for child in busy:
        child.send(signal.SIGKILL)

    failed = (await stack.wait_for(job, "job.attempt_failed")).raw_data()
    assert (failed["attempt"], failed["willRetry"]) == (1, True)
    assert failed["error"]["signal"] == signal.SIGKILL  # type: ignore[index]
    await stack.submit("noop")
    assert await stack.wait_for_ends() == ["job.completed", "job.completed"]
    assert supervisor.pid in [process.pid for process in stack.processes("gpu_worker")]
    await stack.audit()


async def test_what_author_code_started_dies_with_a_killed_supervisor(stack: Stack) -> None:
    """Helpers of a pipeline, also those that outlive their parent, must not hold a device that nobody owns."""
    job = await stack.submit("forks", {"then": "work"}, policy={"maxAttempts": 1})
    await stack.wait_for(job, "milestone.reached")
    supervisor = await stack.worker_of(job)
    helpers = {process.pid for process in stack.leftovers() if process.command == "sleep 600"}
    helpers |= {child.pid for child in stack.children()}

    supervisor.send(signal.SIGKILL)

    assert len(helpers) >= 4  # two of their own programs, one fork, and the child itself
    await eventually(lambda: not helpers & {process.pid for process in stack.leftovers()}, "the helpers are gone")
    assert await stack.wait_for_ends() == ["job.failed"]
    await stack.audit()


async def test_a_webhook_whose_notifier_was_killed_in_mid_delivery_comes_again_with_the_same_id(stack: Stack) -> None:
    never = asyncio.Event()
    async with Receiver([after(never, answer(200)), answer(200)]) as receiver:
        job = await stack.submit("echo", webhookUrl=receiver.url(), webhookEvents=["job.completed"])
        await receiver.wait_for_requests(1)  # it has the request and says nothing

        stack.kill("notifier")
        first, second = await receiver.wait_for_requests(2)

    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert await stack.wait_for_ends() == ["job.completed"]
    assert job in second.body.decode()
    await stack.audit()


async def test_jobs_that_were_answered_survive_a_killed_store_under_load(start_stack: Starter) -> None:
    """Field case 121: with its file on, a killed store brings back all it acknowledged; the stack goes on by itself.

    With `fsync`: at the default durability a disk that cannot follow postpones writes, and readiness says so instead.
    """
    stack = await start_stack(devices="cpu*2", settings={"HEADRACE_STORE__DURABILITY": "fsync"})
    accepted: list[str] = []
    enough, recovered = asyncio.Event(), asyncio.Event()

    async def submit_until_recovered(name: str) -> None:
        number = 0
        while not recovered.is_set():
            number += 1
            for _ in range(200):  # the same key: an answer that was lost must not make a second job
                answer = await stack.post_job("noop", again=f"{name}-{number}")
                if answer.status != 503:
                    break
                await asyncio.sleep(0.05)
            accepted.append(answer.json["id"])
            if len(accepted) > 60:
                enough.set()

    load = [asyncio.create_task(submit_until_recovered(f"client{n}")) for n in range(4)]
    await asyncio.wait_for(enough.wait(), 60)
    killed = [
        process
        for process in stack.leftovers()
        if "valkey-server" in process.command or "redis-server" in process.command
    ]
    before = len(accepted)
    for process in killed:
        process.send(signal.SIGKILL)
    await eventually(lambda: len(accepted) > before + 40, "the store is back and takes jobs")
    recovered.set()
    await asyncio.gather(*load)

    assert killed
    stack.jobs = accepted
    assert len(set(accepted)) == len(accepted)
    assert set(await stack.wait_for_ends()) == {"job.completed"}
    await stack.audit()


async def test_nothing_outlives_a_killed_headrace_up(start_stack: Starter) -> None:
    """With a job running, and helpers of its author beside it."""
    stack = await start_stack()
    job = await stack.submit("forks", {"then": "work"})
    await stack.wait_for(job, "milestone.reached")
    before = stack.leftovers()

    stack.kill_up()

    assert len(before) >= 8
    await eventually(lambda: not stack.leftovers(), "no process is left")

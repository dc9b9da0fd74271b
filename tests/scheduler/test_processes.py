"""The scheduler as a process: killed, stopped, asked to end. Takes its verdict from the log."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from contracts.store import Store, keys
from services.scheduler.verify import verify
from tests.scheduler.rig import PATIENCE_S, POOL, Log, Worker, eventually, submit, submit_many, until

ROOT = Path(__file__).parents[2]
LEASE_S = 1.5
SETTINGS = {
    "HEADRACE_SCHEDULER__LEASE_S": str(LEASE_S),
    "HEADRACE_SCHEDULER__TICK_S": "0.2",
    "HEADRACE_WORKER__LEASE_S": "2",
}


@contextlib.asynccontextmanager
async def scheduler(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A scheduler process; killed at the end if it still runs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    environment |= SETTINGS | {"HEADRACE_REDIS__URL": url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.scheduler", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said(process: asyncio.subprocess.Process, event: str) -> None:
    """Wait until the process has written this event to its log."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        async for line in process.stderr:
            if f'"event": "{event}"'.encode() in line:
                return
    raise AssertionError(f"the process ended without {event}")


async def leads(store: Store, not_token: bytes = b"", pool: str = POOL) -> bytes:
    """Wait until a leader other than `not_token` holds the lead and has made a turn; return its token."""

    async def read() -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await store.client.hgetall(keys.leader(pool))
        return found

    held = await eventually(read, lambda h: h.get(b"token", b"") not in (b"", not_token) and int(h[b"turn"]) > 0)
    return held[b"token"]


async def test_a_killed_leader_is_replaced_within_its_lease_and_a_second(store: Store, store_url: str) -> None:
    """Jobs in every state survive: running, on deck, waiting, scheduled, between attempts."""
    log = Log(store)
    async with scheduler(store_url) as first, (await Worker(store).register()).beating() as worker:
        token = await leads(store)
        async with scheduler(store_url) as second:
            await said(second, "standing_by")
            running = await submit(store)
            attempt = await worker.start(await worker.offer())
            on_deck, waiting = await submit(store), await submit(store)
            soon_ms = int((await store.end_of_log(POOL)).partition("-")[0]) + 1_000
            scheduled = await submit(store, run_at_ms=soon_ms)
            reserved = await worker.offer()

            first.kill()
            killed_s = time.monotonic()
            await leads(store, not_token=token)

            assert time.monotonic() - killed_s < LEASE_S + 1
            await worker.complete(attempt)
            await worker.complete(await worker.start(reserved))
            assert reserved.job_id == on_deck
            assert {await worker.run_next(), await worker.run_next()} == {waiting, scheduled}
            await log.wait_for("job.completed", count=4)
            for job_id in (running, on_deck, waiting, scheduled):
                assert log.types(job_id).count("job.completed") == 1
            assert verify(log.entries) == []
            assert second.returncode is None


async def test_a_stopped_leaders_late_turn_is_refused_after_takeover(store: Store, store_url: str) -> None:
    log = Log(store)
    async with scheduler(store_url) as first, (await Worker(store).register()).beating() as worker:
        token = await leads(store)
        async with scheduler(store_url) as second_process:
            await said(second_process, "standing_by")
            first.send_signal(signal.SIGSTOP)
            # this wakes the stopped one as soon as it may go on: it then decides on what it sees and is late
            jobs = await submit_many(store, 5)
            second = await leads(store, not_token=token)
            ran = [await worker.run_next() for _ in range(2)]

            first.send_signal(signal.SIGCONT)
            ran += [await worker.run_next() for _ in range(3)]

            assert sorted(ran) == jobs
            assert await store.client.hget(keys.leader(POOL), "token") == second
            await log.wait_for("job.completed", count=5)
            for job_id in jobs:
                assert log.types(job_id).count("job.assigned") == 1
            assert verify(log.entries) == []
            assert first.returncode is None
            first.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(first.wait(), 20) == 0


async def test_a_leader_that_is_killed_again_and_again_loses_and_doubles_nothing(store: Store, store_url: str) -> None:
    """Field case 15: restarts in the middle of everything; never two jobs on a slot, each job ends exactly once."""
    log, submitted = Log(store), []
    async with contextlib.AsyncExitStack() as processes:
        workers = [await Worker(store, slots=2).register() for _ in range(2)]
        running = [asyncio.create_task(_work(worker)) for worker in workers]
        leader = await processes.enter_async_context(scheduler(store_url))
        token = await leads(store)
        for _ in range(4):
            standby = await processes.enter_async_context(scheduler(store_url))
            submitted += await submit_many(store, 60)
            await said(standby, "standing_by")
            leader.kill()
            leader, token = standby, await leads(store, not_token=token)
        await log.wait_for("job.completed", count=len(submitted))
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    for job_id in submitted:
        assert log.types(job_id).count("job.completed") == 1
    assert log.of("scheduler.mismatch") == []
    assert verify(log.entries) == []
    assert _most_at_once(log) <= 4


async def test_sigterm_resigns_and_ends_with_zero(store: Store, store_url: str) -> None:
    async with scheduler(store_url) as process:
        await leads(store)

        process.terminate()

        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert await store.client.hget(keys.leader(POOL), "until") == b"0"


async def test_one_process_leads_every_pool_the_store_knows(store: Store, store_url: str) -> None:
    await store.open_pool("large")
    async with scheduler(store_url):
        tokens = [await leads(store, pool=pool) for pool in ("default", "large")]

    assert tokens[0] != tokens[1]


async def test_sigterm_ends_it_while_the_store_is_away(tmp_path: Path) -> None:
    async with scheduler(f"unix://{tmp_path}/nobody.sock") as process:
        await until(lambda: _handles_sigterm(process.pid))  # the only sign from outside that it is up

        process.terminate()

        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_all_faults_of_the_configuration_are_told_at_once(store_url: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    environment |= {
        "HEADRACE_SCHEDULER__LEASE_S": "-1",
        "HEADRACE_SCHEDULER__TICKS": "1",
        "HEADRACE_REDIS__URL": store_url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.scheduler", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )

    _, stderr = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 2
    assert b"HEADRACE_SCHEDULER__LEASE_S" in stderr
    assert b"HEADRACE_SCHEDULER__TICKS" in stderr


async def test_a_snapshot_is_kept_by_a_process_apart(store: Store, store_url: str) -> None:
    await submit_many(store, 3)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.scheduler", "--snapshot", POOL, cwd=ROOT,
        env=environment | {"HEADRACE_REDIS__URL": store_url}, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    assert await asyncio.wait_for(process.wait(), 20) == 0

    assert (await store.snapshots.pointer(POOL)).position == await store.end_of_log(POOL)


async def _work(worker: Worker) -> None:
    """Run whatever is offered, one job a slot, for ever."""
    async with worker.beating():
        while True:
            attempt = await worker.start(await worker.offer())
            await worker.complete(attempt)


def _most_at_once(log: Log) -> int:
    """How many attempts were between start and end at any one place of the log."""
    at_once = most = 0
    for entry in log.entries:
        at_once += (entry.type == "job.started") - (entry.type in ("job.completed", "job.attempt_failed"))
        most = max(most, at_once)
    return most


def _handles_sigterm(pid: int) -> bool:
    """Whether the process has installed a handler, as /proc tells; elsewhere it is given the benefit of the doubt."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return True
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


async def test_a_pool_that_comes_into_being_while_the_scheduler_runs_is_led(store: Store, store_url: str) -> None:
    async with scheduler(store_url):
        await leads(store)
        await store.directory.open()
        await store.open_pool("late")

        assert await leads(store, pool="late")

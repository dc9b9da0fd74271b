"""Time travel against the truth: what the log says of a past position is what was shown when it was the newest.

By hand, about two minutes: `HEADRACE_TEST_POSITIONS=1000 pytest tests/system/test_past.py`. The suite has a small
form of it in `test_lost_workers`.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from tests.harness import Stack, eventually
from tests.harness.recorder import recorded
from tests.system.conftest import Starter

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif("HEADRACE_TEST_POSITIONS" not in os.environ, reason="by hand"),
]

WORKS = (
    ("noop", {}), ("slow", {"steps": 40, "step_s": 0.05}), ("slow", {"steps": 8, "step_s": 0.05}), ("artifacts", {}),
    ("fails", {"how": "retry"}), ("fails", {}), ("crash", {"how": 139}),
)  # fmt: skip
FROZEN_S = 5.0  # longer than a lease: what the worker writes afterwards comes too late


async def test_every_position_of_a_chaotic_run_folds_to_what_was_shown_then(start_stack: Starter) -> None:
    """Kills of workers, scheduler and ingest, frozen workers that write too late, cancels, retries, changes."""
    wanted, chance = int(os.environ["HEADRACE_TEST_POSITIONS"]), random.Random(6)
    stack = await start_stack(workers=3)
    async with recorded(stack, seed=6) as recorder:
        turmoil = [asyncio.create_task(each(stack, chance)) for each in (submits, cancels, retries, kills)]
        await eventually(lambda: min(map(len, (recorder.states, recorder.views))) > wanted * 1.2, "enough", 900)
        for task in turmoil:
            task.cancel()
        await asyncio.gather(*turmoil, return_exceptions=True)
        for process in stack.processes("gpu_worker"):
            process.send(signal.SIGCONT)
        await stack.wait_for_ends(limit_s=180)

    compared = recorder.compare_states(wanted), await recorder.compare_views(wanted)

    types = {entry.type for entry in stack.log.entries}
    print(f"{compared[0]} states and {compared[1]} views of {len(stack.jobs)} jobs, {len(stack.log.entries)} events")
    assert compared == (wanted, wanted)
    assert {"job.retried", "job.cancelled", "job.lease_lost", "job.attempt_failed", "worker.lost"} <= types
    await stack.audit()


async def submits(stack: Stack, chance: random.Random) -> None:
    async def one() -> None:
        model, inputs = chance.choice(WORKS)
        answer = await stack.post_job(model, dict(inputs), metadata={"n": "0"})
        if answer.status == 201:
            stack.jobs.append(answer.json["id"])

    await again_and_again(one, 0.25)


async def cancels(stack: Stack, chance: random.Random) -> None:
    async def one() -> None:
        if stack.jobs:
            job_id = chance.choice(stack.jobs[-20:])
            await stack.request("PATCH", f"/v1/jobs/{job_id}", {"metadata": {"n": str(chance.random())}})
            await stack.cancel(job_id)

    await again_and_again(one, 1.1)


async def retries(stack: Stack, chance: random.Random) -> None:
    async def one() -> None:
        if stack.jobs:
            await stack.request("POST", f"/v1/jobs/{chance.choice(stack.jobs)}/retry")

    await again_and_again(one, 0.7)


async def kills(stack: Stack, chance: random.Random) -> None:
    async def one() -> None:
        what = chance.choice(("gpu_worker", "gpu_worker", "scheduler", "ingest", "freeze", "freeze"))
        if what != "freeze":
            stack.kill(what)
            return
        process = chance.choice(stack.processes("gpu_worker"))
        process.send(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        process.send(signal.SIGCONT)

    await again_and_again(one, 4.0)


async def again_and_again(one: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Do it until cancelled; a server that was killed meanwhile is no matter."""
    while True:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, IndexError, ProcessLookupError):
            await one()
        await asyncio.sleep(pause_s)

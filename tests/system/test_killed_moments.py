"""Kills aimed at a load, an eviction, an upload and a prepared child: each ends as documented, and nothing is left.

The moments are held open, so that each kill hits: a slow load, an idle child that is frozen and cannot leave, a call of
the store that is not answered.
"""

import os
import signal
from typing import Any

import pytest

from tests.gpu_worker.rig import alive
from tests.harness import Fragile, Stack, eventually
from tests.harness.fragile import HASTY
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def child_of(stack: Stack, model: str, state: str) -> int:
    """Return the process that has the model, once it is said to be in this state."""

    async def found() -> int | None:
        models = (await device(stack)).get("models", [])
        pids = [each["childPid"] for each in models if (each["model"], each["state"]) == (model, state)]
        return next((pid for pid in pids if alive(pid)), None)

    return int(await eventually(found, f"{model} is {state}"))


async def device(stack: Stack) -> dict[str, Any]:
    """Return what the only worker that is open says of its only device."""
    workers = (await stack.admin("GET", "/workers")).json["data"]
    return next((dict(each["devices"][0]) for each in workers if each["state"] == "open"), {})


async def all_is_well(stack: Stack, *gone: int) -> None:
    """The next job runs at attempt 1, what was killed is gone, only idle models hold memory, all promises are kept."""
    job = await stack.submit("noop")
    assert await stack.wait_for_ends(job) == ["job.completed"]
    assert attempts(stack, job) == [1]
    await eventually(lambda: not any(map(alive, gone)), "the dead are gone")

    async def is_idle() -> bool:
        models = (await device(stack)).get("models", [])
        return {each["state"] for each in models} == {"idle"} and all(alive(each["childPid"]) for each in models)

    await eventually(is_idle, "the device knows of its children and of no others")
    await stack.audit()


def attempts(stack: Stack, job: str) -> list[object]:
    return [entry.raw_data()["attempt"] for entry in stack.log.of(job, "job.started")]


async def test_a_load_whose_child_or_supervisor_is_killed_begins_anew(fragile: Fragile) -> None:
    stack = fragile
    job = await stack.submit("frozen")
    await stack.wait_for(job, "model.load_started")
    first = await child_of(stack, "frozen@1", "loading")
    os.kill(first, signal.SIGKILL)

    failed = (await stack.wait_for(job, "job.attempt_failed")).raw_data()
    assert (failed["attempt"], failed["willRetry"], failed["error"]["code"]) == (1, True, "killed")  # type: ignore[index]
    await stack.wait_for(job, "model.load_started", count=2)
    second = await child_of(stack, "frozen@1", "loading")
    (supervisor,) = stack.kill("gpu_worker")

    assert await stack.wait_for_ends(job) == ["job.completed"]
    assert attempts(stack, job) == [1, 2, 3]
    assert len(stack.log.of(job, "model.load_completed")) == 1
    await all_is_well(stack, first, second, supervisor)


async def test_an_eviction_whose_child_or_supervisor_is_killed_makes_room_nevertheless(start_stack: Starter) -> None:
    stack = await start_stack(devices="sim:100MiB", settings=HASTY)
    await stack.wait_for_ends(await stack.submit("cold_a"))
    first = await child_of(stack, "cold_a@1", "idle")
    os.kill(first, signal.SIGSTOP)  # it cannot leave
    one = await stack.submit("cold_b")
    await stack.wait_for(one, "model.load_started")
    os.kill(first, signal.SIGKILL)

    assert await stack.wait_for_ends(one) == ["job.completed"]
    assert attempts(stack, one) == [1]
    (loaded,) = stack.log.of(one, "model.load_completed")
    assert loaded.raw_data()["evicted"] == ["cold_a@1"]

    second = await child_of(stack, "cold_b@1", "idle")
    os.kill(second, signal.SIGSTOP)
    two = await stack.submit("cold_a")
    await stack.wait_for(two, "model.load_started")
    (supervisor,) = stack.kill("gpu_worker")

    assert await stack.wait_for_ends(two) == ["job.completed"]
    assert attempts(stack, two) == [1, 2]
    await all_is_well(stack, first, second, supervisor)


@pytest.mark.parametrize(("text", "is_stored"), [(b"artifact.upload_started", False), (b"job.completed", True)])
async def test_an_attempt_whose_supervisor_is_killed_beside_its_upload_is_made_again(
    fragile: Fragile, text: bytes, is_stored: bool
) -> None:
    """Before the first file is stored, and after the last, with its end not yet written: each file is there once."""
    answer = (fragile.proxy.hold_requests if is_stored else fragile.proxy.hold_replies)(text)
    job = await fragile.submit("artifacts")
    await fragile.wait_for(job, "artifact.upload_started")
    await answer.met.wait()

    (supervisor,) = fragile.kill("gpu_worker")
    await fragile.wait_for(job, "job.started", count=2)
    answer.lift()  # what the dead had still to say comes too late

    assert await fragile.wait_for_ends(job) == ["job.completed"]
    assert attempts(fragile, job) == [1, 2]
    result = (await fragile.request("GET", f"/v1/jobs/{job}/result")).json
    made = sorted((each["kind"], each["variant"]) for each in result["artifacts"])
    assert made == [("image", "original"), ("image", "thumbnail"), ("text", "original")]
    for each in result["artifacts"]:
        async with fragile.http.get(each["url"], headers={"Authorization": f"Bearer {fragile.key}"}) as found:
            assert (found.status, len(await found.read())) == (200, each["bytes"])
    assert list((fragile.folder / "d" / "scratch").rglob("taken/*")) == []
    await all_is_well(fragile, supervisor)


async def test_a_prepared_child_that_is_killed_or_whose_worker_is_restarted_costs_no_attempt(
    start_stack: Starter,
) -> None:
    stack = await start_stack(devices="sim:100MiB", settings=HASTY)

    async def prepared() -> list[int]:
        models = (await device(stack)).get("models", [])
        return [each["childPid"] for each in models if each["state"] == "prepared"]

    async def is_prepared() -> bool:
        return bool(await prepared())

    running = await stack.submit("slow", {"steps": 2_000, "step_s": 0.05})
    await stack.wait_for(running, "job.progress")
    on_deck = await stack.submit("cold_b")
    await stack.wait_for(on_deck, "job.assigned")
    await eventually(is_prepared, "the next model waits in host memory")
    (first,) = await prepared()
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: not alive(first), "it is gone")

    stack.signal("gpu_worker", signal.SIGTERM)

    assert (await stack.wait_for(running, "job.queued")).raw_data()["reason"] == "handed_back"
    await stack.wait_for(running, "job.started", count=2)
    await stack.cancel(running)
    assert await stack.wait_for_ends(running, on_deck) == ["job.cancelled", "job.completed"]
    assert (attempts(stack, running), attempts(stack, on_deck)) == ([1, 1], [1])

    again = await stack.submit("slow", {"steps": 2_000, "step_s": 0.05})
    await stack.wait_for(again, "job.progress")
    next_one = await stack.submit("cold_a")
    await stack.wait_for(next_one, "job.assigned")
    await eventually(is_prepared, "the next model waits in host memory")
    children = [each["childPid"] for each in (await device(stack))["models"]]
    assert len(children) >= 2

    (supervisor,) = stack.kill("gpu_worker")

    await stack.wait_for(again, "job.started", count=2)
    await stack.cancel(again)
    assert await stack.wait_for_ends(again, next_one) == ["job.cancelled", "job.completed"]
    assert (attempts(stack, again), attempts(stack, next_one)) == ([1, 2], [1])
    await all_is_well(stack, first, supervisor, *children)

"""What an operator asks of a supervisor: models come and go, a worker rests and comes back."""

import asyncio
import json
from pathlib import Path
from typing import Any

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store, Word
from tests.gpu_worker.rig import PATIENCE_S, alive, eventually
from tests.gpu_worker.stage import POOL, Staff, staff


async def shown(own: Staff, worker_id: str) -> dict[str, Any]:
    return (await own.stage.store.workers(POOL)).get(worker_id, {})


async def state_is(own: Staff, worker_id: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while (fields := await shown(own, worker_id)).get("state") != state:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)
    return fields


async def told_models(own: Staff, *models: str) -> None:
    """Wait until the log says that the first slot may count on these models."""
    count = 0
    while True:
        count += 1
        changed = await own.stage.saw("worker.changed", own.worker_id, count)
        assert isinstance(changed, ev.WorkerChanged)
        if changed.slots[0].models == models:
            return


async def test_a_model_is_loaded_before_a_job_asks_for_it_and_evicted(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:128MiB") as own:
        await own.stage.command(own.worker_id, "load_model", model="echo")
        await told_models(own, "echo@1")
        spec = own.models.find("echo")
        assert spec is not None
        await eventually(lambda: own.lanes[0].slot.memory.is_warm(spec), "it is loaded")
        job_id = await own.give("echo")
        await own.stage.saw("job.completed", job_id)
        assert "model.load_started" not in await own.stage.types(job_id)
        started = await own.stage.saw("job.started", job_id)
        assert isinstance(started, ev.JobStarted)
        assert started.warm
        pid = own.child_pid

        await own.stage.command(own.worker_id, "evict_model", model="echo@1")
        await told_models(own)
        assert not alive(pid)


async def test_what_cannot_be_done_is_told_in_the_log(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:100MiB") as own:
        for number, (model, why) in enumerate(
            [
                ("nothing", "this worker does not serve this model"),
                ("large", "large@1 needs 256 MiB, the device has 100 MiB for models"),
                ("load_fails", "the model could not be loaded"),
            ],
            start=1,
        ):
            await own.stage.command(own.worker_id, "load_model", model=model)
            failed = await own.stage.saw("worker.command_failed", own.worker_id, number)
            assert isinstance(failed, ev.WorkerCommandFailed)
            assert (failed.command, failed.model, failed.message) == ("load_model", model, why)


async def test_a_drained_worker_rests_until_it_is_called_back(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        first = own.worker_id
        running = await own.stage.admit("slow", steps=20, step_s=0.05)
        await own.stage.offer(running, first)
        await own.stage.saw("job.started", running)
        pid = own.child_pid

        await own.stage.command(first, "drain", reason="a new driver")
        draining = await own.stage.saw("worker.draining", first)
        assert isinstance(draining, ev.WorkerDraining)
        assert draining.reason == "a new driver"
        assert await own.stage.offer(await own.stage.admit("echo"), first) is Word.REFUSED
        await own.stage.saw("job.completed", running)
        fields = await state_is(own, first, "drained")
        await eventually(lambda: not alive(pid), "its model has left the device")
        beats = int(fields["b"])
        while int((await shown(own, first))["b"]) < beats + 3:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)
        (device,) = json.loads((await shown(own, first))["devices"])
        assert device["models"] == []

        await own.stage.command(first, "undrain")
        await own.stage.saw("worker.drained", first)
        await own.stage.saw("worker.registered", count=2)
        assert own.worker_id != first
        job_id = await own.give("echo")
        await own.stage.saw("job.completed", job_id)


async def test_a_worker_at_rest_loads_nothing_and_what_was_being_loaded_leaves(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        first = own.worker_id
        own.serve(
            "slow",
            "import time\ndef load(device, prepared):\n    time.sleep(0.5)\ndef run(model, inputs, job): return {}\n",
        )
        await own.stage.command(first, "load_model", model="slow")
        await eventually(lambda: own.lanes[0].slot.memory.models == ("slow@1",), "it is being loaded")
        await own.stage.command(first, "drain")
        await own.stage.command(first, "drain", reason="and again")
        await state_is(own, first, "drained")
        assert own.lanes[0].slot.memory.models == ()

        for number, model in enumerate(("echo", "nothing"), start=1):
            await own.stage.command(first, "load_model", model=model)
            failed = await own.stage.saw("worker.command_failed", first, number)
            assert isinstance(failed, ev.WorkerCommandFailed)
            assert (failed.model, failed.message) == (model, "this worker takes nothing new")
        assert own.lanes[0].slot.memory.children.describe() == []


async def test_a_drain_with_a_deadline_gives_back_what_runs_too_long(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("slow", steps=100_000, step_s=0.01)
        await own.stage.saw("job.started", job_id)
        await own.stage.command(own.worker_id, "drain")
        await own.stage.saw("worker.draining", own.worker_id)
        assert (await own.stage.state(job_id)).status is JobStatus.IN_PROGRESS
        await own.stage.command(own.worker_id, "drain", deadlineMs=100)  # now it is urgent
        await own.stage.saw("job.queued", job_id)
        state = await own.stage.state(job_id)
        assert (state.status, state.attempt) == (JobStatus.QUEUED, 0)


async def test_a_resting_worker_ends_when_it_is_stopped(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        worker_id = own.worker_id
        await own.stage.command(worker_id, "drain")
        await state_is(own, worker_id, "drained")
        own.stop.set()
        assert await own.ends() is True
        await own.stage.saw("worker.drained", worker_id)
        assert [entry.type for entry in own.stage.entries].count("worker.draining") == 1
        assert await store.workers(POOL) == {}


async def test_after_each_load_the_log_hears_what_is_there_also_when_nothing_has_changed(
    store: Store, tmp_path: Path
) -> None:
    """The fold counts on nothing beside a model that is being loaded until the worker has spoken."""
    async with staff(store, tmp_path, heartbeat_s=1.0) as own:
        job_id = await own.give("echo")
        await own.stage.saw("job.completed", job_id)
        await told_models(own, "echo@1")
        told = [entry.type for entry in own.stage.entries].count("worker.changed")
        failing = await own.give("load_fails", max_attempts=1)
        changed = await own.stage.saw("worker.changed", own.worker_id, told + 1)
        assert isinstance(changed, ev.WorkerChanged)
        await own.stage.saw("job.failed", failing)
        while changed.slots[0].models != ("echo@1",):
            told += 1
            changed = await own.stage.saw("worker.changed", own.worker_id, told + 1)
            assert isinstance(changed, ev.WorkerChanged)

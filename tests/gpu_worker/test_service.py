"""The supervisor on a real store: offers become results, files, telemetry, and room for the next job."""

import asyncio
import hashlib
import json
from pathlib import Path

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store
from contracts.store.words import Word
from tests.gpu_worker.rig import eventually
from tests.gpu_worker.stage import POOL, TENANT, staff


async def test_an_offer_becomes_a_result(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("echo", prompt="hello", steps=3)
        await own.stage.saw("job.completed", job_id)
        assert await own.stage.types(job_id) == [
            "job.created",
            "job.assigned",
            "job.started",
            "model.load_started",
            "model.load_completed",
            "job.device_released",
            "job.completed",
        ]
        assert await own.stage.results(job_id) == [{"result": {"inputs": {"prompt": "hello", "steps": 3}}}]
        state = await own.stage.state(job_id)
        assert (state.status, state.progress, state.attempt, state.fence) == (JobStatus.COMPLETED, 100, 1, 1)


async def test_the_next_job_starts_in_the_call_that_frees_the_device(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        first = await own.stage.admit("slow", steps=20, step_s=0.02)
        second = await own.stage.admit("slow", steps=1, step_s=0)
        await own.stage.offer(first, own.worker_id)
        await own.stage.saw("job.started", first)
        assert await own.stage.offer(second, own.worker_id) is Word.APPLIED
        assert await own.stage.offer(await own.stage.admit("echo"), own.worker_id) is Word.REFUSED
        await own.stage.saw("job.completed", second)

        released = next(e for e in (await own.stage.history(first)).entries if e.type == "job.device_released")
        started = next(e for e in (await own.stage.history(second)).entries if e.type == "job.started")
        between = await store.client.xrange(f"hr:{{{POOL}}}:log", f"({released.position}", f"({started.position}")
        assert between == []
        assert (await own.stage.state(first)).status is JobStatus.COMPLETED
        warm = started.event()
        assert isinstance(warm, ev.JobStarted)
        assert warm.warm


async def test_files_are_stored_after_the_device_is_free_and_described(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("artifacts")
        completed = await own.stage.saw("job.completed", job_id)
        types = await own.stage.types(job_id)

        assert isinstance(completed, ev.JobCompleted)
        assert [a.variant for a in completed.artifacts] == ["original", "original", "thumbnail"]
        assert types.index("job.device_released") < types.index("artifact.upload_started")
        assert types.count("artifact.uploaded") == 3
        assert types.count("thumbnail.ready") == 1
        folder = own.config.data_dir / "artifacts" / POOL / job_id
        for artifact in completed.artifacts:
            record = json.loads((folder / f"{artifact.id}.json").read_text())
            content = (folder / record["storedAs"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == artifact.sha256 == record["sha256"]
            assert (record["tenantId"], record["path"]) == (TENANT, artifact.path)
            assert record["expiresAtMs"] - record["createdMs"] == 604_800_000
        assert completed.artifacts[1].mime == "image/png"
        assert completed.artifacts[1].width == 512


async def test_a_preview_is_one_file_with_the_newest_content(store: Store, tmp_path: Path) -> None:
    author = "def run(model, inputs, job):\n    import time\n    for i in range(3):\n"
    author += "        job.preview(b'\\x89PNG' + bytes([i]), step=i)\n        time.sleep(0.6)\n"
    async with staff(store, tmp_path) as own:
        own.serve("echo", author)
        job_id = await own.give("echo")
        await own.stage.saw("job.completed", job_id)
        shown = [e.event() for e in (await own.stage.history(job_id)).entries if e.type == "preview.available"]
        last = shown[-1]
        assert isinstance(last, ev.PreviewAvailable)
        assert len(shown) >= 2
        files = sorted((own.config.data_dir / "artifacts" / POOL / job_id).iterdir())
        assert [file.name for file in files] == [f"{last.artifact_id}.json", f"{last.artifact_id}.png"]
        assert last.mime == "image/png"
        assert files[1].read_bytes() == b"\x89PNG" + bytes([last.step or 0])


async def test_telemetry_is_coalesced_and_milestones_are_not(store: Store, tmp_path: Path) -> None:
    """Field cases 11, 73 and 83: 100,000 reports are a handful of events and the end is among them."""
    author = (
        "def run(model, inputs, job):\n    for i in range(100000):\n        job.progress(i + 1, 100000, phase='@x')\n"
    )
    author += "    for i in range(300):\n        job.milestone('tile.done', index=i)\n"
    author += "    job.milestone('latents.decoded', step=4)\n    job.milestone('job.completed')\n"
    async with staff(store, tmp_path) as own:
        own.serve("echo", author)
        job_id = await own.give("echo")
        await own.stage.saw("job.completed", job_id)
        types = await own.stage.types(job_id)
        assert 1 <= types.count("job.progress") < 60
        assert types.count("milestone.reached") == 301
        assert types.count("latents.decoded") == 1
        assert types.count("job.completed") == 1
        assert (await own.stage.state(job_id)).attempt == 1


async def test_nothing_is_read_ahead_and_everything_is_acknowledged(store: Store, tmp_path: Path) -> None:
    """Field case 42: one job runs, one at most lies on deck, and the work stream is empty afterwards."""
    async with staff(store, tmp_path) as own:
        first, second, third = [await own.stage.admit("slow", steps=5, step_s=0.02) for _ in range(3)]
        await own.stage.offer(first, own.worker_id)
        await own.stage.saw("job.started", first)
        await own.stage.offer(second, own.worker_id)
        await own.stage.withdraw(second)
        await own.stage.offer(third, own.worker_id)
        await own.stage.saw("job.completed", third)
        assert "job.started" not in await own.stage.types(second)

        work = f"hr:{{{POOL}}}:work:{own.worker_id}"
        while await store.client.xlen(work):  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)
        assert (await store.client.xpending(work, "gpu"))["pending"] == 0
        await eventually(lambda: not [p for p in own.scratch.rglob("*") if not p.is_dir()], "scratch is empty")


async def test_what_a_newer_scheduler_says_is_obeyed_as_far_as_it_is_known(store: Store, tmp_path: Path) -> None:
    """Field cases 80 and 82: unknown kinds and fields and damaged entries hold nobody up, and none stays."""
    async with staff(store, tmp_path) as own:
        work = f"hr:{{{POOL}}}:work:{own.worker_id}"
        for fields in (
            {"kind": "defragment", "d": "{}"},
            {"kind": "offer", "d": "{"},
            {"kind": "offer", "d": "[]"},
            {"x": "y"},
        ):
            await store.client.xadd(work, fields)
        job_id = await own.stage.admit("echo")
        await own.stage.offer(job_id, own.worker_id, colour="green")
        await own.stage.saw("job.completed", job_id)

        while await store.client.xlen(work):  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)


async def test_devices_work_beside_each_other(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:64MiB*2") as own:
        registered = await own.stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        assert [(s.index, s.device, s.bytes) for s in registered.slots] == [
            (0, "sim-test-0-0", 64 << 20),
            (1, "sim-test-0-1", 64 << 20),
        ]
        jobs = [await own.stage.admit("slow", steps=10, step_s=0.05) for _ in range(2)]
        for slot, job_id in enumerate(jobs):
            await own.stage.offer(job_id, own.worker_id, slot)
        for job_id in jobs:
            await own.stage.saw("job.started", job_id)
        assert {(await own.stage.state(job_id)).status for job_id in jobs} == {JobStatus.IN_PROGRESS}
        for job_id in jobs:
            await own.stage.saw("job.completed", job_id)
        assert [f["models"] for f in await own.told_slots()] == [["slow@1"], ["slow@1"]]


async def test_the_heartbeat_goes_on_while_author_code_holds_the_interpreter_lock(store: Store, tmp_path: Path) -> None:
    """Field cases 35 and 46: four leases of a C call with the lock held; the lease lives outside the child."""
    async with staff(store, tmp_path, lease_s=0.5) as own:
        job_id = await own.give("hang_gil", seconds=2)
        await own.stage.saw("job.started", job_id)
        before = await own.beats()
        await own.stage.saw("job.completed", job_id)
        assert await own.beats() - before >= 10
        assert (await own.stage.state(job_id)).attempt == 1


async def test_people_can_see_what_each_slot_is_doing(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("slow", steps=100000, step_s=0.01)
        await own.stage.saw("job.progress", job_id)
        await own.beaten(2)
        (device,) = json.loads((await store.workers(POOL))[own.worker_id]["devices"])
        assert (device["uuid"], device["kind"]) == ("cpu-test-0-0", "cpu")
        (slot,), (resident,) = device["slots"], device["models"]
        assert slot == {"index": 0, "state": "busy", "childPid": own.child_pid, "model": "slow@1", "waitsFor": None}
        assert resident == {
            "model": "slow@1", "state": "busy", "bytes": 64 << 20, "pinned": False, "childPid": own.child_pid
        }  # fmt: skip
        await own.stage.cancel(job_id)
        await own.stage.saw("job.cancelled", job_id)


async def test_two_slots_share_the_memory_of_a_device(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:150MiB", slots=2) as own:
        registered = await own.stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        assert [(s.index, s.device, s.bytes) for s in registered.slots] == [
            (0, "sim-test-0-0", 150 << 20),
            (1, "sim-test-0-0", 150 << 20),
        ]
        jobs = [await own.stage.admit("slow", steps=100_000, step_s=0.02) for _ in range(2)]
        for slot, job_id in enumerate(jobs):
            await own.stage.offer(job_id, own.worker_id, slot)
        for job_id in jobs:
            await own.stage.saw("job.progress", job_id)
        await own.beaten(2)
        (device,) = json.loads((await store.workers(POOL))[own.worker_id]["devices"])
        assert [(slot["index"], slot["state"]) for slot in device["slots"]] == [(0, "busy"), (1, "busy")]
        assert [(each["model"], each["state"]) for each in device["models"]] == [("slow@1", "busy")] * 2
        assert len({slot["childPid"] for slot in device["slots"]}) == 2
        for job_id in jobs:
            await own.stage.cancel(job_id)
        for job_id in jobs:
            await own.stage.saw("job.cancelled", job_id)

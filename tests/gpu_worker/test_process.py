"""The supervisor as a process: signals, kill -9, successors, and configurations that cannot work."""

import os
import signal
from pathlib import Path

import pytest

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store
from tests.gpu_worker.process import start, worker
from tests.gpu_worker.rig import alive, eventually
from tests.gpu_worker.stage import POOL


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, helpers of author code among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


async def test_sigterm_ends_an_idle_supervisor_with_0(store: Store, tmp_path: Path) -> None:
    async with worker(store, tmp_path) as (process, stage, worker_id):
        process.send(signal.SIGTERM)
        assert await process.ends() == 0
        await stage.saw("worker.drained", worker_id)
        assert await store.workers(POOL) == {}


async def test_sigterm_hands_a_long_job_back_and_a_second_one_does_not_wait(store: Store, tmp_path: Path) -> None:
    """Field case 138: the attempt is given back and nothing is left running."""
    async with worker(store, tmp_path, worker__drain_s="600") as (process, stage, worker_id):
        job_id = await stage.admit("slow", steps=100000, step_s=0.01)
        await stage.offer(job_id, worker_id)
        await stage.saw("job.progress", job_id)
        children = children_of(process.pid)
        process.send(signal.SIGTERM)
        await stage.saw("worker.draining", worker_id)
        process.send(signal.SIGTERM)
        assert await process.ends() == 0
        state = await stage.state(job_id)
        assert (state.status, state.attempt) == (JobStatus.QUEUED, 0)
        assert children
        assert not any(map(alive, children))


@pytest.mark.parametrize("model", ["slow", "hang_gil", "forks"])
async def test_kill_9_leaves_no_process_and_a_successor_takes_over_at_once(
    store: Store, tmp_path: Path, model: str
) -> None:
    """Field cases 38 and 49: the device's lock proves that the old one is dead; nobody waits for a lease."""
    lease = {"worker__lease_s": "600"}
    async with worker(store, tmp_path, **lease) as (process, stage, worker_id):
        job_id = await stage.admit(model, steps=100000, step_s=0.01, then="work")
        await stage.offer(job_id, worker_id)
        await stage.saw("job.progress", job_id)
        family = [pid for child in children_of(process.pid) for pid in (child, *children_of(child))]
        assert len(family) == (4 if model == "forks" else 1)

        process.send(signal.SIGKILL)
        await process.ends()
        await eventually(lambda: not any(map(alive, family)), "the children are gone", within_s=5)

        async with await start(store.url, tmp_path, **lease) as successor:
            lost = await stage.saw("worker.lost", worker_id)
            assert isinstance(lost, ev.WorkerLost)
            registered = await stage.saw("worker.registered", count=2)
            assert isinstance(registered, ev.WorkerRegistered)
            assert list(await store.workers(POOL)) == [registered.worker_id]
            assert registered.slots[0].device.endswith("-0-0")
            assert not list((tmp_path / "data" / "scratch").iterdir())
            successor.send(signal.SIGTERM)
            assert await successor.ends() == 0


async def test_two_supervisors_of_a_host_share_no_device(store: Store, tmp_path: Path) -> None:
    """Field case 69: each has a name of its own, whatever they were told."""
    async with worker(store, tmp_path) as (_, stage, _worker_id), await start(store.url, tmp_path) as second:
        other = await stage.saw("worker.registered", count=2)
        assert isinstance(other, ev.WorkerRegistered)
        assert other.slots[0].device.endswith("-1-0")
        second.send(signal.SIGTERM)
        assert await second.ends() == 0


async def test_a_stopped_supervisor_that_wakes_up_late_is_fenced(store: Store, tmp_path: Path) -> None:
    async with worker(store, tmp_path) as (process, stage, worker_id):
        job_id = await stage.admit("slow", steps=100000, step_s=0.01)
        await stage.offer(job_id, worker_id)
        await stage.saw("job.progress", job_id)
        process.send(signal.SIGSTOP)
        await stage.reclaim(job_id)
        await stage.remove(worker_id)
        position = (await stage.state(job_id)).position
        process.send(signal.SIGCONT)
        await stage.saw("worker.registered", count=2)
        events = [e.type for e in (await stage.history(job_id)).entries if _after(e.position, position)]
        assert set(events) <= {"job.event_rejected"}


def _after(one: str, other: str) -> bool:
    return tuple(map(int, one.split("-"))) > tuple(map(int, other.split("-")))


async def test_all_faults_of_the_configuration_are_told_at_once(tmp_path: Path) -> None:
    process = await start(
        "unix:///nowhere", tmp_path, worker__heartbeat_s="-1", worker__nonsense="1", pipelines="/nowhere", listen=True
    )
    errors = await process.errors()
    assert await process.ends() == 2
    assert "HEADRACE_WORKER__HEARTBEAT_S" in errors
    assert "HEADRACE_WORKER__NONSENSE" in errors


async def test_a_device_that_cannot_be_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    process = await start("unix:///nowhere", tmp_path, worker__devices="gpu*2", listen=True)
    errors = await process.errors()
    assert await process.ends() == 2
    assert "HEADRACE_WORKER__DEVICES" in errors
    assert "sim:24GiB" in errors


async def test_two_builds_of_onnxruntime_are_refused_with_the_cure(tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime_gpu"):
        folder = tmp_path / "packages" / f"{name}-1.2.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.2\n")
    process = await start("unix:///nowhere", tmp_path, listen=True, packages=tmp_path / "packages")
    errors = await process.errors()
    assert await process.ends() == 2
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in errors


async def test_sigterm_before_the_store_is_there_ends_it_with_0(tmp_path: Path) -> None:
    locks = tmp_path / "headrace-locks"
    async with await start(f"unix://{tmp_path}/none.sock", tmp_path) as process:
        await eventually(lambda: locks.exists() and os.listdir(locks) != [], "it has begun")
        process.send(signal.SIGTERM)
        assert await process.ends() == 0

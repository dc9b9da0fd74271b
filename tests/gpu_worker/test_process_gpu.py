"""A supervisor on a host whose driver library is made up: real processes, real children, no card."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store
from tests.gpu_worker import fake_nvml
from tests.gpu_worker.process import Process, start
from tests.gpu_worker.stage import POOL, Stage

GIB = 1 << 30
UUID = "GPU-8f6a2b1c-0000-0000-0000-000000000001"


class Card:
    """One GPU; `hold` says which processes have how much of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "packages"
        self.folder.mkdir()
        shutil.copy(Path(fake_nvml.__path__[0]) / "pynvml.py", self.folder)
        self.hold({})

    def hold(self, holders: dict[int, int]) -> None:
        told = {"uuid": UUID, "total": 24 * GIB, "holders": holders, "utilization": 37, "temperature": 61}
        (self.folder / "new").write_text(json.dumps([told]))
        os.replace(self.folder / "new", self.folder / "gpus.json")

    async def worker(self, store: Store, folder: Path, **options: Any) -> Process:
        return await start(store.url, folder, packages=self.folder, worker__devices="gpu", **options)


async def test_a_second_supervisor_of_a_gpu_takes_no_jobs_until_the_first_is_gone(
    store: Store, tmp_path: Path
) -> None:  # fmt: skip
    """Field case 69: the lock is the UUID's, the second one says `gpu_busy`; kill -9 frees it."""
    card, stage = Card(tmp_path), Stage(store)
    await stage.lead()
    async with await card.worker(store, tmp_path) as first:
        registered = await stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        assert [(slot.device, slot.kind) for slot in registered.slots] == [(UUID, "cuda")]
        async with await card.worker(store, tmp_path, listen=True) as second:
            line = await second.line_with("gpu_busy")
            assert UUID in line
            assert f"held by process {first.pid}" in line
            jobs = [await stage.admit("echo") for _ in range(10)]
            for job_id in jobs:
                await stage.offer(job_id, registered.worker_id)
                assert (await stage.ended(job_id)).status is JobStatus.COMPLETED
            workers = await store.workers(POOL)
            assert [fields["pid"] for fields in workers.values()] == [str(first.pid)]
            first.send(signal.SIGKILL)
            successor = await stage.saw("worker.registered", count=2)
            assert isinstance(successor, ev.WorkerRegistered)
            assert successor.pid == second.pid

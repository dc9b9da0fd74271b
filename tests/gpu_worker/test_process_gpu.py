"""A supervisor on a host whose driver library is made up: real processes, real children, no card."""

import signal
from pathlib import Path
from typing import Any

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store
from tests.gpu_worker.card import Card
from tests.gpu_worker.process import Process, start
from tests.gpu_worker.stage import POOL, Stage


async def worker(card: Card, store: Store, folder: Path, **options: Any) -> Process:
    return await start(store.url, folder, packages=card.folder, worker__devices="gpu", **options)


async def test_a_second_supervisor_of_a_gpu_takes_no_jobs_until_the_first_is_gone(
    store: Store, tmp_path: Path
) -> None:  # fmt: skip
    """Field case 69: the lock is the card.uuid's, the second one says `gpu_busy`; kill -9 frees it."""
    card, stage = Card(tmp_path / "packages"), Stage(store)
    await stage.lead()
    async with await worker(card, store, tmp_path) as first:
        registered = await stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        assert [(slot.device, slot.kind) for slot in registered.slots] == [(card.uuid, "cuda")]
        async with await worker(card, store, tmp_path, listen=True) as second:
            line = await second.line_with("gpu_busy")
            assert card.uuid in line
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

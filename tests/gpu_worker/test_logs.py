"""The worker's part of a job's log: shown while the attempt runs, stored before the event that ends it."""

import asyncio
from pathlib import Path

from contracts.ids import log_id
from contracts.store import Store
from contracts.store.live import STORED, Piece
from tests.gpu_worker.rig import PATIENCE_S
from tests.gpu_worker.stage import POOL, Staff, staff

TALKER = """
import os, sys, time
print("loading", flush=True)

def run(model, inputs, job):
    print("€ä " * inputs.get("words", 1), flush=True)
    while not os.path.exists(inputs["until"]):
        time.sleep(0.01)
    print("done", flush=True)
    if inputs.get("fails"):
        raise ValueError("broken")
"""


def log_of(own: Staff, job_id: str, fence: int = 1) -> bytes | None:
    record = own.shelf.find(POOL, log_id(job_id, fence))
    if record is None:
        return None
    content = own.shelf.open(POOL, record)
    assert content is not None
    with content:
        return b"".join(iter(content.read, b""))


async def shown(store: Store, job_id: str, enough: int) -> list[Piece]:
    """Wait until so many bytes of a job were shown."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pieces = await store.live.recent(POOL, job_id)
            if sum(len(each.data) for each in pieces) >= enough:
                return pieces
            await asyncio.sleep(0.02)


async def test_what_is_printed_is_shown_at_once_and_stored_at_the_end(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        own.serve("echo", TALKER)
        job_id = await own.give("echo", until=str(tmp_path / "go"), words=8_000)
        expected = "loading\n" + "€ä " * 8_000 + "\n"
        pieces = await shown(store, job_id, len(expected.encode()))
        for piece in pieces:
            piece.data.decode()  # none ends within a character
        assert [piece.offset for piece in pieces] == [sum(len(p.data) for p in pieces[:i]) for i in range(len(pieces))]
        assert b"".join(piece.data for piece in pieces).decode() == expected
        assert log_of(own, job_id) is None

        (tmp_path / "go").touch()
        completed = await own.stage.saw("job.completed", job_id)
        assert (log_of(own, job_id) or b"").decode() == expected + "done\n"
        assert (await store.live.recent(POOL, job_id))[-1].offset == STORED
        assert "log" not in str(completed)  # it is no artifact of the job
        record = own.shelf.find(POOL, log_id(job_id, 1))
        assert record is not None
        assert (record.kind, record.mime) == ("log", "text/plain; charset=utf-8")


async def test_a_failure_leaves_its_traceback_and_silence_leaves_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with staff(store, tmp_path) as own:
        silent = await own.give("noop")
        await own.stage.saw("job.completed", silent)
        own.serve("echo", TALKER)
        job_id = await own.give("echo", until=str(tmp_path / "go"), fails=True, max_attempts=1)
        await own.stage.saw("job.failed", job_id)

        text = (log_of(own, job_id) or b"").decode()
        assert text.startswith("loading\n€ä")
        assert "ValueError: broken" in text
        assert log_of(own, silent) is None
        assert not (own.config.data_dir / "logs").exists()


async def test_a_store_of_files_that_is_away_costs_the_log_and_not_the_job(store: Store, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    async with staff(store, tmp_path) as own:
        own.serve("echo", TALKER)
        (own.config.data_dir / "artifacts").write_text("a file where the directory should be")
        job_id = await own.give("echo", until=str(tmp_path / "go"), fails=True, max_attempts=1)
        await own.stage.saw("job.failed", job_id)
        async with asyncio.timeout(PATIENCE_S):
            while not (kept := list((own.config.data_dir / "logs" / "jobs").glob("*.log"))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "ValueError: broken" in kept[0].read_text()


async def test_members_of_a_batch_share_the_log_of_their_pass(store: Store, tmp_path: Path) -> None:
    author = (
        "def run(model, inputs, job): return {}\n"
        "def run_batch(model, inputs, jobs):\n"
        "    print('together', len(jobs), flush=True)\n    return [{}] * len(jobs)\n"
    )
    async with staff(store, tmp_path) as own:
        own.serve("batch", author)
        jobs = [await own.stage.admit("batch") for _ in range(2)]
        await own.stage.offer_batch(jobs, own.worker_id)
        for job_id in jobs:
            await own.stage.saw("job.completed", job_id)
        assert [log_of(own, job_id) for job_id in jobs] == [b"together 2\n"] * 2


async def test_nobody_reads_what_a_pass_printed_about_jobs_of_another_tenant(store: Store, tmp_path: Path) -> None:
    author = (
        "def run(model, inputs, job): return {}\n"
        "def run_batch(model, inputs, jobs):\n"
        "    for one in inputs:\n        print(one['prompt'], flush=True)\n"
        "    raise ValueError('broken')\n"
    )
    async with staff(store, tmp_path) as own:
        own.serve("batch", author)
        tenants = ("t_a", "t_b")
        jobs = [await own.stage.admit("batch", prompt=f"of {each}", tenant_id=each, max_attempts=1) for each in tenants]
        await own.stage.offer_batch(jobs, own.worker_id)
        for job_id in jobs:
            await own.stage.saw("job.device_released", job_id)
        assert [log_of(own, job_id) for job_id in jobs] == [None, None]
        assert [await store.live.recent(POOL, job_id) for job_id in jobs] == [[], []]

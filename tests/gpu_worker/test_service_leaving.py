"""Drains, lost registrations and stores that go away: nothing is lost, nothing runs twice, nobody is blamed."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.job import JobStatus
from contracts.store import Store, Word
from contracts.store.attempts import Attempt, Attempts
from contracts.store.replies import Started
from tests.gpu_worker.rig import alive, eventually
from tests.gpu_worker.stage import POOL, TENANT, Staff, staff
from tests.servers import Server
from tests.store.lossy import LossyProxy

TERMINAL = {"job.completed", "job.failed", "job.cancelled", "job.expired"}


async def test_a_drain_lets_the_running_job_end_and_gives_the_deck_back(store: Store, tmp_path: Path) -> None:
    """Field case 48: heartbeats go on until the last job has ended; what lay on deck is unassigned, not lost."""
    async with staff(store, tmp_path) as own:
        running = await own.stage.admit("slow", steps=20, step_s=0.05)
        waiting = await own.stage.admit("slow")
        await own.stage.offer(running, own.worker_id)
        await own.stage.saw("job.started", running)
        await own.stage.offer(waiting, own.worker_id)
        await eventually(lambda: len(list(own.scratch.iterdir())) >= 2, "the offer has arrived")
        before = await own.beats()

        own.stop.set()
        await own.stage.saw("worker.draining", own.worker_id)
        assert await own.stage.offer(await own.stage.admit("echo"), own.worker_id) is Word.REFUSED
        await own.stage.saw("job.unassigned", waiting)
        assert (await own.stage.state(running)).status is JobStatus.IN_PROGRESS
        await own.beaten(3, since=before)
        await own.stage.saw("job.completed", running)

        assert await own.ends() is True
        await own.stage.saw("worker.drained", own.worker_id)
        assert await store.workers(POOL) == {}
        state = await own.stage.state(waiting)
        assert (state.status, state.attempt, dict(state.offers)) == (JobStatus.QUEUED, 0, {})


async def test_what_does_not_end_in_time_is_handed_back_at_no_cost(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, drain_s=0.1) as own:
        job_id = await own.give("slow", steps=100000, step_s=0.01)
        await own.stage.saw("job.progress", job_id)
        pid = own.child_pid
        own.stop.set()
        assert await own.ends() is True
        state = await own.stage.state(job_id)
        assert (state.status, state.attempt, state.fence, state.worker_id) == (JobStatus.QUEUED, 0, 1, None)
        queued = await own.stage.saw("job.queued", job_id)
        assert isinstance(queued, ev.JobQueued)
        assert queued.reason == "handed_back"
        assert not alive(pid)


async def test_a_cancel_during_the_drain_is_a_cancellation(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, drain_s=0.1, heartbeat_s=600) as own:
        job_id = await own.give("slow", steps=100000, step_s=0.01)
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id, tell=False)
        own.stop.set()
        assert await own.ends() is True
        assert (await own.stage.state(job_id)).status is JobStatus.CANCELLED


class SlowStart(Attempts):
    """Answers a start only when told, as a slow network would."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.batcher)
        self.accepted, self.answer = asyncio.Event(), asyncio.Event()

    async def start(
        self, attempt: Attempt, event: ev.JobStarted, done_entries: Sequence[str] = (), now_ms: int = 0
    ) -> Started:
        started = await super().start(attempt, event, done_entries, now_ms)
        self.accepted.set()
        await self.answer.wait()
        return started


@pytest.fixture
async def slow_start(store: Store) -> AsyncIterator[tuple[Store, SlowStart]]:
    own = Store(store.url)
    own.attempts = slow = SlowStart(own)
    yield own, slow
    await own.aclose()


async def accepted(own: Staff, slow: SlowStart, mark: Path) -> str:
    """Have a start accepted whose answer is not here yet; its author code would leave a mark. Returns the job's id."""
    own.serve("echo", f"def run(model, inputs, job):\n    open({str(mark)!r}, 'w')\n")
    job_id = await own.give("echo")
    await asyncio.wait_for(slow.accepted.wait(), 60)
    return job_id


async def test_a_start_answered_during_the_drain_is_handed_back_before_author_code_runs(
    store: Store, slow_start: tuple[Store, SlowStart], tmp_path: Path
) -> None:
    worker_store, slow = slow_start
    async with staff(store, tmp_path, worker_store) as own:
        job_id = await accepted(own, slow, tmp_path / "ran")
        own.stop.set()
        await own.stage.saw("worker.draining", own.worker_id)
        slow.answer.set()
        assert await own.ends() is True
    assert not (tmp_path / "ran").exists()
    assert (await own.stage.types(job_id))[-1] == "job.queued"
    assert (await own.stage.state(job_id)).attempt == 0


async def test_a_cancel_that_overtakes_the_answer_to_the_start_is_obeyed(
    store: Store, slow_start: tuple[Store, SlowStart], tmp_path: Path
) -> None:
    """Field case 53: the cancel arrives on the other connection before we know that our start was accepted."""
    worker_store, slow = slow_start
    async with staff(store, tmp_path, worker_store) as own:
        job_id = await accepted(own, slow, tmp_path / "ran")
        await own.stage.cancel(job_id)
        await eventually(lambda: bool(own.lanes[0].cancels), "the cancel is known")
        slow.answer.set()
        await own.stage.saw("job.cancelled", job_id)
    assert not (tmp_path / "ran").exists()


async def test_a_worker_that_was_given_up_ends_its_jobs_and_comes_back_under_another_id(
    store: Store, tmp_path: Path
) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("hang")
        await own.stage.saw("job.progress", job_id)
        first, pid = own.worker_id, own.child_pid
        await own.stage.reclaim(job_id)
        await own.stage.remove(first)
        await own.stage.saw("worker.registered", count=2)
        assert own.worker_id != first
        assert not alive(pid)
        await own.stage.offer(job_id, own.worker_id)
        await own.stage.saw("job.started", job_id, 2)
        assert (await own.stage.state(job_id)).fence == 2
        await own.stage.cancel(job_id)
        await own.stage.saw("job.cancelled", job_id)


async def test_a_store_that_is_away_costs_nobody_a_lease(own_server: Server, tmp_path: Path) -> None:
    """Field cases 45 and 117: the author's work goes on, and what happened meanwhile is written when it is back."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    async with staff(store, tmp_path) as own:
        first = await own.stage.admit("slow", steps=40, step_s=0.05)
        second = await own.stage.admit("echo")
        await own.stage.offer(first, own.worker_id)
        await own.stage.saw("job.progress", first)
        await own.stage.offer(second, own.worker_id)
        worker_id, pid = own.worker_id, own.child_pid

        own_server.stop()
        await eventually(lambda: not own.lanes[0].is_running(first), "it ended without the store")
        own_server.start()

        await own.stage.ended(first)
        await own.stage.ended(second)
        assert own.worker_id == worker_id
        assert pid
        for job_id in (first, second):
            types = await own.stage.types(job_id)
            assert types.count("job.started") == 1
            assert types[-1] == "job.completed"
    await store.aclose()


async def test_lost_replies_neither_lose_nor_double_anything(
    store: Store, store_server: Server, tmp_path: Path
) -> None:
    proxy = LossyProxy(store_server.socket)
    await proxy.open()
    worker_store = Store(proxy.url, retries=0)
    async with staff(store, tmp_path, worker_store) as own:
        for number in range(8):
            job_id = await own.give("slow", steps=4, step_s=0.05)
            await own.stage.saw("job.started", job_id)
            proxy.drop = 1 + number % 3
            await own.stage.ended(job_id)
            types = await own.stage.types(job_id)
            assert [t for t in types if t in TERMINAL] == ["job.completed"]
            assert types.count("job.started") == types.count("job.device_released") == 1
            assert types.count("prompt.encoded") == 1
        proxy.drop = 0
    assert proxy.dropped >= 8
    await worker_store.aclose()
    await proxy.close()
    assert await store.jobs.page(POOL, TENANT, closed=False) == []


async def test_a_store_of_files_that_hangs_does_not_hold_up_a_worker_that_leaves(store: Store, tmp_path: Path) -> None:
    released = threading.Event()

    class Hanging(LocalObjects):
        def put_file(self, key: str, source: Path | bytes, mime: str, durable: bool = True) -> None:
            released.wait()

    shelf = Shelf(Hanging(tmp_path / "store"))
    try:
        async with staff(store, tmp_path, shelf=shelf, drain_s=0.1, settle_s=0.1) as own:
            job_id = await own.give("artifacts")
            await own.stage.saw("artifact.upload_started", job_id)
            begun = asyncio.get_running_loop().time()
            own.stop.set()
            own.hurry.set()
            assert not await own.ends()  # something is left unsettled; the lease tells
            assert asyncio.get_running_loop().time() - begun < 20
    finally:
        released.set()

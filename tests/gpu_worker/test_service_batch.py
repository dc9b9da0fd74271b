"""Batches through the supervisor on a real store: one start, one settle and one bill for each member."""

import os
import signal
from pathlib import Path

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store, Word
from tests.gpu_worker.rig import eventually
from tests.gpu_worker.stage import POOL, Staff, Stage, staff


async def offered(own: Staff, *jobs: str) -> None:
    assert await own.stage.offer_batch(jobs, own.worker_id) == [Word.APPLIED] * len(jobs)


async def last(stage: Stage, job_id: str, kind: type[ev.Event]) -> ev.Event:
    entries = (await stage.history(job_id)).entries
    return next(event for entry in reversed(entries) if isinstance(event := entry.event(), kind))


async def test_four_in_one_pass_one_cancelled_one_rejected(store: Store, tmp_path: Path) -> None:
    """Each member ends by itself; the device's time is divided among them."""
    async with staff(store, tmp_path) as own:
        good, cancelled, _, other = jobs = [
            await own.stage.admit("batch", steps=60, step_s=0.02),
            await own.stage.admit("batch"),
            await own.stage.admit("batch", how="reject"),
            await own.stage.admit("batch"),
        ]
        await offered(own, *jobs)
        await own.stage.saw("job.progress", cancelled)
        assert {job for job, _ in own.lanes[0].held} == set(jobs)
        await own.stage.cancel(cancelled)
        await own.stage.saw("job.cancelled", cancelled)
        assert (await own.stage.state(good)).status is JobStatus.IN_PROGRESS

        states = [await own.stage.ended(job_id) for job_id in jobs]
        assert [state.status for state in states] == ["completed", "cancelled", "failed", "completed"]
        assert [(state.attempt, state.fence) for state in states] == [(1, 1)] * 4
        assert (await own.stage.results(good))[0]["result"] == {"size": 4, "number": 0}
        completed = await last(own.stage, other, ev.JobCompleted)
        assert isinstance(completed, ev.JobCompleted)
        assert [artifact.bytes for artifact in completed.artifacts] == [1]

        starts = [await last(own.stage, job_id, ev.JobStarted) for job_id in jobs]
        assert {start.batch for start in starts if isinstance(start, ev.JobStarted)} == {"1-0"}
        released = [await last(own.stage, job_id, ev.JobDeviceReleased) for job_id in jobs]
        bills = [event.gpu_ms for event in released if isinstance(event, ev.JobDeviceReleased)]
        assert min(bills[0], bills[3]) > bills[1]
        assert sum(bills) >= 60 * 20
        for job_id in jobs:
            assert (await own.stage.types(job_id)).count("job.device_released") == 1
        entries = await store.client.xrange(f"hr:{{{POOL}}}:work:{own.worker_id}")
        await eventually(lambda: own.lanes[0].held == [], "nothing is held")
        assert all(fields[b"kind"] != b"offer" for _, fields in entries)


async def test_a_child_that_dies_in_the_pass_costs_no_member_an_attempt(store: Store, tmp_path: Path) -> None:
    """Field case 61 for a batch: kill -9 of the child; the members run again, alone, at attempt 1."""
    async with staff(store, tmp_path) as own:
        jobs = [await own.stage.admit("batch", steps=1000, step_s=0.02) for _ in range(3)]
        await offered(own, *jobs)
        await own.stage.saw("job.progress", jobs[0])
        os.kill(own.child_pid, signal.SIGKILL)
        for job_id in jobs:
            queued = await own.stage.saw("job.queued", job_id)
            assert isinstance(queued, ev.JobQueued)
            assert (queued.reason, queued.attempt, queued.alone) == ("handed_back", 0, True)
        assert await own.stage.offer(jobs[0], own.worker_id) is Word.APPLIED
        assert (await own.stage.ended(jobs[0])).status is JobStatus.COMPLETED
        assert (await own.stage.results(jobs[0]))[-1] == {"result": {"size": 1}}
        assert (await own.stage.state(jobs[0])).attempt == 1


async def test_a_member_whose_start_is_refused_is_left_out(store: Store, tmp_path: Path) -> None:
    """It was withdrawn or cancelled while the batch lay on deck: a smaller batch runs, or one job by itself."""
    async with staff(store, tmp_path) as own:
        first = await own.give("slow", steps=30, step_s=0.02)
        await own.stage.saw("job.started", first)
        jobs = [await own.stage.admit("batch") for _ in range(3)]
        await offered(own, *jobs)
        assert await own.stage.withdraw(jobs[0]) is Word.APPLIED
        for job_id in jobs[1:]:
            assert (await own.stage.ended(job_id)).status is JobStatus.COMPLETED
        assert [(await own.stage.results(job_id))[0]["result"]["size"] for job_id in jobs[1:]] == [2, 2]
        assert (await own.stage.state(jobs[0])).status is JobStatus.QUEUED
        assert await own.stage.offer(jobs[0], own.worker_id) is Word.APPLIED
        assert (await own.stage.ended(jobs[0])).attempt == 1


async def test_a_batch_follows_a_job_and_a_job_follows_a_batch(store: Store, tmp_path: Path) -> None:
    """By the log no two passes are on the slot at once."""
    async with staff(store, tmp_path) as own:
        first = await own.give("batch")
        await own.stage.saw("job.started", first)
        batch = [await own.stage.admit("batch", steps=30, step_s=0.02) for _ in range(2)]
        assert await own.stage.offer_batch(batch, own.worker_id) == [Word.APPLIED] * 2
        await own.stage.saw("job.started", batch[1])
        after = await own.stage.admit("batch")
        assert await own.stage.offer(after, own.worker_id) is Word.APPLIED
        for job_id in (first, *batch, after):
            assert (await own.stage.ended(job_id)).status is JobStatus.COMPLETED

        on_device: set[str] = set()
        for entry in own.stage.entries:
            if entry.type == "job.started":
                assert not on_device or (entry.subject in batch and on_device <= set(batch))
                on_device.add(entry.subject)
            elif entry.type == "job.device_released":
                on_device.discard(entry.subject)


async def test_a_drain_declines_a_batch_on_deck_and_hands_back_one_that_runs(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, drain_s=0.2) as own:
        running = [await own.stage.admit("batch", steps=1000, step_s=0.02) for _ in range(2)]
        await offered(own, *running)
        await own.stage.saw("job.progress", running[1])
        on_deck = [await own.stage.admit("batch") for _ in range(2)]
        await offered(own, *on_deck)
        own.stop.set()
        assert await own.ends()
        for job_id in (*running, *on_deck):
            state = await own.stage.state(job_id)
            assert (state.status, state.attempt, state.offers) == (JobStatus.QUEUED, 0, {})
        queued = await last(own.stage, running[0], ev.JobQueued)
        assert isinstance(queued, ev.JobQueued)
        assert queued.alone is None


async def test_a_member_the_leader_took_back_stops_and_the_others_go_on(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        kept, taken = jobs = [await own.stage.admit("batch", steps=60, step_s=0.02) for _ in range(2)]
        await offered(own, *jobs)
        await own.stage.saw("job.progress", taken)
        await own.stage.reclaim(taken)
        await eventually(lambda: [job for job, _ in own.lanes[0].held] == [kept], "one is left")
        assert (await own.stage.ended(kept)).status is JobStatus.COMPLETED
        assert "job.completed" not in await own.stage.types(taken)

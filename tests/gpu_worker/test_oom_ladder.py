"""Out of memory from end to end: real scheduler, real supervisors, real children whose memory the kernel limits."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.events import Event
from contracts.job import JobState, JobStatus
from contracts.profiles import raised
from contracts.store import Store
from services.gpu_worker.process.memory import SUPPORTED
from services.gpu_worker.service import Supervisor
from services.scheduler.verify import verify
from tests.gpu_worker.memory_pressure import MIB, TAKES, Crowd
from tests.gpu_worker.stage import Menu, Stage, config_for
from tests.scheduler.rig import candidate

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="the kernel limits each child on Linux only")
MODEL = "oom"
E = TypeVar("E", bound=Event)


class Fleet(Stage):
    """A pool with workers that a real leader gives its jobs to."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.workers: dict[str, str] = {}  # host -> worker

    async def take(self, mib: int, vram_mib: int = 60) -> str:
        """Submit a job that takes so much and is said to take so much."""
        return await self.admit(MODEL, vram_bytes=vram_mib * MIB, mib=[mib])

    async def all_ended(self, jobs: Sequence[str]) -> list[JobState]:
        return [await self.ended(job_id) for job_id in jobs]

    def of(self, kind: type[E], subject: str = "") -> list[E]:
        """Return the events of a kind that were read."""
        found = (entry.event() for entry in self.entries if subject in ("", entry.subject))
        return [event for event in found if isinstance(event, kind)]

    async def saw_raised(self) -> ev.ModelProfiled:
        """Wait until a profile was raised after running out of memory."""
        while not (told := [event for event in self.of(ev.ModelProfiled) if event.source == "oom"]):
            await self.saw("model.profiled", count=len(self.of(ev.ModelProfiled)) + 1)
        return told[0]

    async def saw_slots(self, host: str, count: int) -> None:
        """Wait until the newest word of a worker is that it has so many slots."""
        number = 0
        while True:
            number += 1
            changed = await self.saw("worker.changed", self.workers[host], number)
            told = self.of(ev.WorkerChanged, self.workers[host])
            assert isinstance(changed, ev.WorkerChanged)
            if len(told[-1].slots) == count:
                return


@asynccontextmanager
async def fleet(store: Store, url: str, folder: Path, devices: str, hosts: Sequence[str], slots: int = 1
) -> AsyncIterator[Fleet]:  # fmt: skip
    stage, menu = Fleet(store), Menu()
    entry = folder / "takes.py"
    entry.write_text(TAKES)
    menu.replace(MODEL, entry)
    stop, tasks = asyncio.Event(), []
    async with candidate(url):
        for host in hosts:
            config = config_for(folder / host, devices=devices, slots=slots, drain_s=5.0)
            config = replace(config, host=replace(config.host, name=host))
            shelf = Shelf(LocalObjects(config.data_dir / "artifacts"))
            tasks.append(asyncio.create_task(Supervisor(store, config, menu, os.environ, shelf).run(stop, stop)))
            registered = await stage.saw("worker.registered", count=len(tasks))
            assert isinstance(registered, ev.WorkerRegistered)
            stage.workers[host] = registered.worker_id
        try:
            yield stage
        finally:
            stop.set()
            await asyncio.gather(*tasks)


async def test_a_job_that_ran_out_of_memory_runs_alone_once_and_is_known_from_then_on(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    """Field case 71: it succeeds on an empty device in a fresh child; one that never can is final; the others go on."""
    async with fleet(store, store_url, tmp_path, "sim:256MiB", ["h1"], slots=2) as pool:
        before = [await pool.take(5) for _ in range(3)]
        heavy, huge = await pool.take(100), await pool.take(400)
        after = [await pool.take(5) for _ in range(3)]
        states = await pool.all_ended([*before, heavy, huge, *after])
        profiled = await pool.saw_raised()
        later = await pool.take(100)
        await pool.ended(later)
        await pool.saw("job.completed", later)

        assert [(str(state.status), state.attempt) for state in states] == [
            *[("completed", 1)] * 3, ("completed", 2), ("failed", 2), *[("completed", 1)] * 3
        ]  # fmt: skip
        (failure,) = pool.of(ev.JobAttemptFailed, heavy)
        assert (failure.error.code, failure.will_retry, failure.alone) == ("out_of_memory", True, True)
        offers = pool.of(ev.JobAssigned, heavy)
        assert [(offer.bytes, offer.alone) for offer in offers] == [(60 * MIB, None), (256 * MIB, True)]
        assert len(pool.of(ev.ModelLoadStarted, heavy)) >= 1
        (end,) = pool.of(ev.JobFailed, huge)
        assert (end.error.code, end.error.retryable, end.attempts) == ("too_large", False, 2)

        assert (profiled.source, profiled.bytes) == ("oom", raised(profiled.peak_bytes or 0))
        assert profiled.peak_bytes == pytest.approx(100 * MIB, abs=3 * MIB)
        (offer,) = pool.of(ev.JobAssigned, later)
        assert (offer.bytes, offer.alone) == (profiled.bytes, None)
        assert verify(pool.entries) == []


async def test_what_the_error_says_reaches_the_log_and_the_caller(store: Store, store_url: str, tmp_path: Path) -> None:
    async with fleet(store, store_url, tmp_path, "sim:256MiB", ["h1"]) as pool:
        job_id = await pool.admit(MODEL, vram_bytes=200 * MIB, library="numpy", mib=[512])
        await pool.ended(job_id)
        await pool.saw("job.failed", job_id)
        assert [failure.error.requested_bytes for failure in pool.of(ev.JobAttemptFailed, job_id)] == [512 * MIB] * 2
        (end,) = pool.of(ev.JobFailed, job_id)
        assert (end.error.code, end.error.requested_bytes) == ("too_large", 512 * MIB)


async def test_a_device_that_is_full_of_somebody_elses_memory_burns_three_attempts_at_most(
    store: Store, store_url: str, tmp_path: Path, crowded: Crowd
) -> None:
    """Field case 63: 90 % is a foreign process's; the slot leaves, is tested, stays out, and the others do the work."""
    crowded("sim-h1-0-0", 12)
    async with fleet(store, store_url, tmp_path, "sim:128MiB", ["h1", "h2"]) as pool:
        jobs = [await pool.take(50) for _ in range(20)]
        await pool.saw_slots("h1", 0)
        states = await pool.all_ended(jobs)
        assert {state.status for state in states} == {JobStatus.COMPLETED}

        await pool.saw("job.completed", count=20)
        burned = pool.of(ev.JobAttemptFailed)
        assert 1 <= len(burned) <= 3
        assert {(failure.worker_id, failure.error.code) for failure in burned} == {
            (pool.workers["h1"], "out_of_memory")
        }
        crowded("sim-h1-0-0", None)
        await pool.saw_slots("h1", 1)
        assert verify(pool.entries) == []


async def test_with_nowhere_else_to_go_jobs_wait_for_the_device_to_be_whole_again(
    store: Store, store_url: str, tmp_path: Path, crowded: Crowd
) -> None:
    """Field case 63 with one worker: at most three attempts are burned, however long it lasts; none fails."""
    crowded("sim-h1-0-0", 12)
    async with fleet(store, store_url, tmp_path, "sim:128MiB", ["h1"]) as pool:
        jobs = [await pool.take(50) for _ in range(20)]
        await pool.saw_slots("h1", 0)
        await crowded.tests_go_on()
        assert [state.status for state in await asyncio.gather(*map(pool.state, jobs))].count(JobStatus.QUEUED) == 20

        crowded("sim-h1-0-0", None)
        assert {state.status for state in await pool.all_ended(jobs)} == {JobStatus.COMPLETED}
        await pool.saw("job.completed", count=20)
        assert 1 <= len(pool.of(ev.JobAttemptFailed)) <= 3
        # What lay on deck by then was given back, and not started first.
        assert [event for event in pool.of(ev.JobQueued) if event.reason == "handed_back"] == []
        assert len(pool.of(ev.JobStarted)) == 20 + len(pool.of(ev.JobAttemptFailed))
        assert verify(pool.entries) == []


async def test_a_job_alone_is_not_too_large_for_a_device_that_is_not_whole(
    store: Store, store_url: str, tmp_path: Path, crowded: Crowd
) -> None:
    """Field case 63: its second failure is the device's, which is found out; it succeeds when the device is whole."""
    crowded("sim-h1-0-0", 12)
    async with fleet(store, store_url, tmp_path, "sim:128MiB", ["h1"]) as pool:
        job_id = await pool.take(50)
        await pool.saw("job.attempt_failed", job_id, 2)
        await pool.saw_slots("h1", 0)
        crowded("sim-h1-0-0", None)
        state = await pool.ended(job_id)

        assert (state.status, state.attempt) == (JobStatus.COMPLETED, 3)
        failures = pool.of(ev.JobAttemptFailed, job_id)
        assert [(failure.error.code, failure.will_retry, failure.alone) for failure in failures] == [
            ("out_of_memory", True, True)
        ] * 2


async def test_a_job_that_crashes_the_device_in_two_children_is_poison_and_its_neighbours_are_well(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    """Field case 37: the same model, the same slot; a fault of the device itself makes no poison."""
    async with fleet(store, store_url, tmp_path, "sim:128MiB", ["h1"]) as pool:
        texts = ("CUDA error: device-side assert triggered", "CUDA error: uncorrectable ECC error encountered")
        bad, unlucky = [await pool.admit(MODEL, vram_bytes=60 * MIB, mib=[1], text=text) for text in texts]
        healthy = [await pool.take(5) for _ in range(5)]
        states = await pool.all_ended([bad, unlucky, *healthy])
        await pool.saw("job.failed", count=2)

        assert [(str(state.status), state.attempt) for state in states] == [
            ("failed", 2), ("failed", 3), *[("completed", 1)] * 5
        ]  # fmt: skip
        ends = [pool.of(ev.JobFailed, job_id)[0] for job_id in (bad, unlucky)]
        assert [(end.error.code, end.dead_lettered) for end in ends] == [("poison", True), ("device_unavailable", True)]
        assert {failure.error.code for failure in pool.of(ev.JobAttemptFailed, bad)} == {"child_crashed"}
        assert len(pool.of(ev.ModelLoadStarted)) >= 5  # each of the five took a fresh child's place
        assert verify(pool.entries) == []

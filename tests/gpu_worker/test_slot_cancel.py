"""Cancelling, with real children: in time, in every state, and without a trace on the next job."""

import asyncio
from pathlib import Path

import pytest

from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.frames import Milestone, Progress
from services.gpu_worker.slots.outcome import Stop, Verdict
from tests.gpu_worker.rig import PATIENCE_S, Recorder, alive, eventually, model, rig


async def test_a_cancel_is_noticed_at_the_next_step_and_keeps_the_child(tmp_path: Path) -> None:
    async with rig(tmp_path, Bounds(cancel_grace_s=30)) as own:
        attempt = own.attempt(model("slow"), steps=100000, step_s=0.01)
        recorder, running = own.begin(attempt)
        await recorder.saw(Progress)
        pid = own.slot.child_pid

        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        outcome = await asyncio.wait_for(running, PATIENCE_S)

        assert (outcome.verdict, outcome.how) == (Verdict.CANCELLED, "cooperative")
        assert own.slot.child_pid == pid
        assert (await own.run("slow", steps=1, step_s=0)).verdict is Verdict.COMPLETED


@pytest.mark.parametrize(("name", "inputs"), [("hang", {}), ("hang_gil", {}), ("ignores_cancel", {"term": True})])
async def test_who_does_not_listen_is_killed_and_replaced(tmp_path: Path, name: str, inputs: dict[str, bool]) -> None:
    """Field case 46: a handler that holds the interpreter lock is ended by the ladder, not by a heartbeat."""
    async with rig(tmp_path) as own:
        attempt = own.attempt(model(name), **inputs)
        recorder, running = own.begin(attempt)
        await recorder.saw(Progress)
        pid = own.slot.child_pid
        assert pid is not None

        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        outcome = await asyncio.wait_for(running, PATIENCE_S)

        assert (outcome.verdict, outcome.how) == (Verdict.CANCELLED, "killed")
        assert not alive(pid)
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


async def test_a_cancel_passes_a_flood_of_logs_and_progress(tmp_path: Path) -> None:
    """Field case 51: 5,000 reports a second and 1 MB lines neither delay the cancel nor fill anything up."""
    async with rig(tmp_path, Bounds(cancel_grace_s=30)) as own:
        attempt = own.attempt(model("chatty"))
        recorder, running = own.begin(attempt)
        await eventually(lambda: len(recorder.telemetry) > 10, "it is under way")
        loop = asyncio.get_running_loop()
        begun_s = loop.time()

        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        outcome = await asyncio.wait_for(running, PATIENCE_S)

        assert (outcome.verdict, outcome.how) == (Verdict.CANCELLED, "cooperative")
        assert loop.time() - begun_s < 2
        assert attempt.log_path.stat().st_size < 1.1 * (1 << 20)


async def test_progress_is_thinned_in_the_child(tmp_path: Path) -> None:
    """Field case 11: a job's reports are at most ten a second, however many it makes."""
    async with rig(tmp_path) as own:
        recorder = Recorder()
        outcome = await own.slot.run(own.attempt(model("chatty"), seconds=1), recorder)
        assert outcome.result is not None
        assert outcome.result["count"] > 1000
        assert 3 <= len(recorder.of(Progress)) <= 15


async def test_helpers_of_a_killed_job_die_with_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("forks"), then="crash")
        recorder = Recorder()
        outcome = await asyncio.wait_for(own.slot.run(attempt, recorder), PATIENCE_S)
        helpers = recorder.of(Milestone)[0].data["pids"]
        assert outcome.code == "child_exited"
        assert len(helpers) == 3
        for pid in helpers:
            await eventually(lambda pid=pid: not alive(pid), "helper gone")


async def test_a_cancel_while_the_model_loads_never_runs_the_job(tmp_path: Path) -> None:
    """Field case 53: between claim and handler start, a cancel means that author code of the job never runs."""
    async with rig(tmp_path, Bounds(cancel_grace_s=30)) as own:
        attempt = own.attempt(model("artifacts"))
        _, running = own.begin(attempt)
        await eventually(lambda: own.slot.child_pid is not None, "it is starting")

        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        outcome = await asyncio.wait_for(running, PATIENCE_S)

        assert outcome.verdict is Verdict.CANCELLED
        assert list(attempt.scratch.iterdir()) == []


async def test_200_late_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    """Field case 54: a cancel of a finished job reaches nobody, also not the next job in the same child."""
    async with rig(tmp_path) as own:
        for _ in range(200):
            attempt = own.attempt(model("noop"))
            recorder, running = own.begin(attempt)
            own.slot.stop("job_0", 0, Stop.CANCEL)
            outcome = await running
            own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
            assert outcome.verdict is Verdict.COMPLETED
            assert recorder.telemetry == []


async def test_handing_back_stops_the_job_without_calling_it_failed(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("slow"), steps=100000, step_s=0.01)
        recorder, running = own.begin(attempt)
        await recorder.saw(Progress)
        own.slot.stop(attempt.job, attempt.fence, Stop.HAND_BACK)
        assert (await running).verdict is Verdict.HANDED_BACK

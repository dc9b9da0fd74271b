"""How an attempt can end, with real children: every way has its own code, and the slot works on afterwards."""

import asyncio
import ctypes.util
import os
import signal
from pathlib import Path

import pytest

from services.gpu_worker.process.frames import Milestone, Progress
from services.gpu_worker.slots.outcome import Stop, Verdict
from services.gpu_worker.slots.watchdog import Limits
from tests.gpu_worker.rig import PATIENCE_S, Recorder, alive, eventually, model, rig


async def test_a_job_runs_and_its_model_stays_warm_for_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        first = Recorder()
        outcome = await own.slot.run(own.attempt(model("slow"), steps=3, step_s=0), first)
        pid = own.slot.child_pid

        second = Recorder()
        again = await own.slot.run(own.attempt(model("slow"), steps=1, step_s=0), second)

        assert (outcome.verdict, outcome.result) == (Verdict.COMPLETED, {"steps": 3, "device": "cpu"})
        assert again.verdict is Verdict.COMPLETED
        assert own.slot.child_pid == pid
        assert len(first.loads) == 2
        assert second.loads == []
        assert [(f.done, f.total, f.phase) for f in first.of(Progress)][-1] == (3, 3, "denoising")
        assert first.of(Milestone)[0].name == "prompt.encoded"


async def test_another_model_takes_the_childs_place_where_there_is_no_room_for_both(tmp_path: Path) -> None:
    async with rig(tmp_path, device_mib=256) as own:
        await own.run("echo")
        first = own.slot.child_pid
        outcome = await own.run("noop")
        assert outcome.verdict is Verdict.COMPLETED
        assert first is not None
        assert not alive(first)


@pytest.mark.parametrize(
    ("how", "code", "status", "number"),
    [
        (139, "child_exited", 139, None),
        (2, "child_exited", 2, None),
        ("SIGSEGV", "child_crashed", None, signal.SIGSEGV),
        ("SIGABRT", "child_crashed", None, signal.SIGABRT),
        ("SIGKILL", "killed", None, signal.SIGKILL),
    ],
)
async def test_a_dead_child_is_told_by_how_it_died_and_replaced(
    tmp_path: Path, how: int | str, code: str, status: int | None, number: int | None
) -> None:
    """Field case 61: exit status, signal and out-of-memory are four different codes, with the number in the record."""
    async with rig(tmp_path) as own:
        outcome = await own.run("crash", how=how)
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, code)
        assert (outcome.exit_code, outcome.signal) == (status, number)
        assert outcome.killed_child
        assert outcome.retryable
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


@pytest.mark.skipif(ctypes.util.find_library("stdc++") is None, reason="needs the C++ library")
async def test_a_library_that_dies_of_bad_alloc_is_out_of_memory_and_no_crash(tmp_path: Path) -> None:
    """Field case 61: also where C++ ends the process and no exception comes back."""
    async with rig(tmp_path) as own:
        outcome = await own.run("bad_alloc")
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, "out_of_memory")
        assert (outcome.signal, outcome.killed_child) == (None, False)  # else two of them would be poison
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


async def test_a_segfault_leaves_its_traceback_in_the_jobs_log(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("crash"), how="SIGSEGV")
        await own.slot.run(attempt, Recorder())
        assert "Segmentation fault" in attempt.log_path.read_text()


@pytest.mark.parametrize(
    ("how", "verdict", "code", "retryable", "after_s"),
    [
        ("error", Verdict.FAILED, "internal", True, None),
        ("reject", Verdict.FAILED, "input_rejected", False, None),
        ("retry", Verdict.FAILED, "internal", True, 1),
        ("rate", Verdict.HANDED_BACK, "rate_limited", True, 3),
    ],
)
async def test_what_author_code_raises_decides_the_outcome(
    tmp_path: Path, how: str, verdict: Verdict, code: str, retryable: bool, after_s: float | None
) -> None:
    async with rig(tmp_path) as own:
        outcome = await own.run("fails", how=how)
        assert (outcome.verdict, outcome.code, outcome.retryable) == (verdict, code, retryable)
        assert outcome.retry_after_s == after_s
        assert not outcome.killed_child


async def test_sys_exit_in_author_code_is_reported_and_does_not_end_the_child(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcome = await own.run("exits", code=2)
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, "child_exited")
        assert "sys.exit(2)" in outcome.message
        assert own.slot.warm_model is not None


@pytest.mark.parametrize("what", ["bytes", "set", "nan", "circular", "array", "huge_int", "surrogate", "list"])
async def test_a_result_that_is_no_json_is_refused_for_good(tmp_path: Path, what: str) -> None:
    """Field case 12: odd types in results are a clear failure and the worker stays healthy."""
    async with rig(tmp_path) as own:
        outcome = await own.run("bad_result", what=what)
        assert (outcome.code, outcome.retryable) == ("result_not_serializable", False)
        assert (await own.run("bad_result", what="scalars")).result == {"f": 0.5, "i": 7, "t": "2026-11-29"}


async def test_a_result_of_20_mb_is_refused_for_good(tmp_path: Path) -> None:
    """Field case 11: results are small; pictures go through artifacts."""
    async with rig(tmp_path) as own:
        outcome = await own.run("bad_result", what="large")
        assert (outcome.code, outcome.retryable) == ("result_too_large", False)


async def test_a_model_that_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcome = await own.run("load_fails")
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, "model_load_failed")
        assert "the weights are not there" in outcome.message
        assert own.slot.warm_model is None
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


@pytest.mark.parametrize(
    ("word", "code"), [("device_unavailable", "device_unavailable"), ("worker_lost", "model_load_failed")]
)
async def test_an_author_may_name_some_codes_and_no_others(tmp_path: Path, word: str, code: str) -> None:
    async with rig(tmp_path) as own:
        outcome = await own.slot.run(own.attempt(model("load_fails", env={"CODE": word})), Recorder())
        assert outcome.code == code


async def test_an_interpreter_that_does_not_exist_is_a_load_failure(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("echo", interpreter="/nowhere/python"))
        outcome = await own.slot.run(attempt, Recorder())
        assert outcome.code == "model_load_failed"


async def test_running_out_of_the_slice_is_an_error_of_its_own_and_the_child_goes_on(tmp_path: Path) -> None:
    """Field cases 61 and 63: memory has its own code, and the same process works afterwards."""
    async with rig(tmp_path, kind="sim") as own:
        small = own.attempt(model("oom"), budget_mib=128, mib=32)
        fits = await own.slot.run(small, Recorder())
        too_much = await own.slot.run(own.attempt(model("oom"), budget_mib=128, mib=512), Recorder())
        again = await own.slot.run(own.attempt(model("oom"), budget_mib=128, mib=32), Recorder())

        assert fits.verdict is again.verdict is Verdict.COMPLETED
        assert (too_much.code, too_much.killed_child) == ("out_of_memory", False)
        assert fits.peak_bytes is not None
        assert 31 <= fits.peak_bytes / (1 << 20) <= 40


async def test_running_out_of_the_slice_while_loading_is_told_apart_from_a_broken_model(tmp_path: Path) -> None:
    async with rig(tmp_path, kind="sim") as own:
        attempt = own.attempt(model("oom", env={"LOAD_MIB": "512"}), budget_mib=128, mib=1)
        outcome = await own.slot.run(attempt, Recorder())
        assert outcome.code == "out_of_memory"


async def test_a_run_that_takes_too_long_is_stopped_though_it_catches_everything(tmp_path: Path) -> None:
    """Field case 56: the run-time clock starts with run() and no handler can swallow it."""
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("ignores_cancel"), limits=Limits(timeout_s=0.3), term=True)
        outcome = await asyncio.wait_for(own.slot.run(attempt, Recorder()), PATIENCE_S)
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, "execution_timeout")
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


async def test_silence_is_a_limit_of_its_own_and_progress_moves_it(tmp_path: Path) -> None:
    """Field case 57: a call that never ends is found by the optional limit since the last progress."""
    async with rig(tmp_path) as own:
        silent = own.attempt(model("hang"), limits=Limits(timeout_s=None, silence_s=0.3))
        outcome = await asyncio.wait_for(own.slot.run(silent, Recorder()), PATIENCE_S)
        assert outcome.code == "silence_timeout"
        lively = own.attempt(model("slow"), limits=Limits(timeout_s=None, silence_s=2.0), steps=30, step_s=0.1)
        assert (await own.slot.run(lively, Recorder())).verdict is Verdict.COMPLETED


async def test_a_child_killed_while_idle_is_replaced_for_the_next_job(tmp_path: Path) -> None:
    """Field case 62: no job ever waits on a dead child."""
    async with rig(tmp_path) as own:
        await own.run("echo")
        pid = own.slot.child_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: own.slot.child_pid is None, "the slot noticed")
        assert (await own.run("echo")).verdict is Verdict.COMPLETED


async def test_a_lost_fence_wins_over_everything(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("slow"), steps=1000, step_s=0.01)
        recorder, running = own.begin(attempt)
        await recorder.saw(Progress)
        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        own.slot.stop(attempt.job, attempt.fence, Stop.FENCED)
        assert (await running).verdict is Verdict.FENCED

"""Several attempts in one pass, with real children: each has its own end, and nobody pays for the others."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.gpu_worker.process.frames import ArtifactFile, Milestone, Progress
from services.gpu_worker.slots.attempt import Member
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict
from services.gpu_worker.slots.watchdog import Limits
from tests.gpu_worker.rig import PATIENCE_S, Recorder, Rig, eventually, model, rig


class Batch:
    """Members of one pass with what each was told."""

    def __init__(self, own: Rig, *inputs: dict[str, Any], name: str = "batch", limits: Limits | None = None) -> None:
        self.own = own
        self.heard = [Recorder() for _ in inputs]
        attempts = [own.attempt(model(name), 64, limits, **one) for one in inputs]
        self.members = [Member(attempt, heard) for attempt, heard in zip(attempts, self.heard, strict=True)]
        self.task = asyncio.create_task(own.slot.run_batch(self.members))

    def stop(self, number: int, reason: Stop) -> None:
        attempt = self.members[number].attempt
        self.own.slot.stop(attempt.job, attempt.fence, reason)

    async def outcomes(self) -> list[Outcome]:
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE_S)
        return [member.outcome.result() for member in self.members]


def verdicts(outcomes: Sequence[Outcome]) -> list[tuple[Verdict, bool]]:
    return [(outcome.verdict, outcome.alone) for outcome in outcomes]


async def test_one_pass_runs_all_and_each_hears_only_of_itself(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        batch = Batch(own, {}, {}, {})
        outcomes = await batch.outcomes()
        assert verdicts(outcomes) == [(Verdict.COMPLETED, False)] * 3
        assert [outcome.result for outcome in outcomes] == [{"size": 3, "number": number} for number in range(3)]
        for member, heard in zip(batch.members, batch.heard, strict=True):
            assert {frame.job for frame in heard.telemetry} == {member.attempt.job}
            assert [frame.name for frame in heard.of(Milestone)] == ["prompt.encoded"]
            assert heard.of(Progress)[-1].done == 3
            assert [frame.name for frame in heard.of(ArtifactFile)] == ["number.txt"]
            assert len(heard.loads) == 2
            assert member.attempt.log_path.read_text() == "together 3\n"
        pid = own.slot.child_pid
        assert (await own.run("batch")).result == {"size": 1}
        assert own.slot.child_pid == pid


async def test_a_returned_exception_ends_one_member_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {}, {"how": "reject"}, {"how": "retry"}, {"how": "error"}).outcomes()
        assert verdicts(outcomes) == [(Verdict.COMPLETED, False), *[(Verdict.FAILED, False)] * 3]
        found = [(outcome.code, outcome.retryable, outcome.retry_after_s) for outcome in outcomes[1:]]
        assert found == [("input_rejected", False, None), ("internal", True, 0), ("internal", True, None)]


@pytest.mark.parametrize(
    ("how", "code", "lives"),
    [("crash", "child_crashed", False), ("raise", "internal", True), ("oom", "out_of_memory", True),
     ("short", "internal", True)],
)  # fmt: skip
async def test_what_ends_the_pass_is_laid_at_no_members_door(tmp_path: Path, how: str, code: str, lives: bool) -> None:
    """A crash blames nobody: healthy members must not become poison (why.md 28)."""
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {}, {"how": how}).outcomes()
        assert verdicts(outcomes) == [(Verdict.HANDED_BACK, True)] * 2
        assert {outcome.code for outcome in outcomes} == {code}
        assert not any(outcome.killed_child for outcome in outcomes)
        assert (own.slot.warm_model is not None) is lives
        assert (await own.run("batch")).result == {"size": 1}


async def test_a_pass_that_runs_into_its_time_limit_is_killed_and_its_members_try_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {"how": "hang"}, {}, limits=Limits(0.3)).outcomes()
        assert verdicts(outcomes) == [(Verdict.HANDED_BACK, True)] * 2
        assert {outcome.code for outcome in outcomes} == {"execution_timeout"}
        assert (await own.run("batch")).result == {"size": 1}


async def test_a_providers_not_now_is_of_all_members(tmp_path: Path) -> None:
    """They all draw on that resource."""
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {"how": "rate"}, {}).outcomes()
        assert verdicts(outcomes) == [(Verdict.HANDED_BACK, False)] * 2
        assert {(outcome.code, outcome.resource, outcome.retry_after_s) for outcome in outcomes} == {
            ("rate_limited", "moderation", 2)
        }


async def test_a_model_without_run_batch_says_so_and_its_jobs_run_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {}, {}, name="no_batch").outcomes()
        assert verdicts(outcomes) == [(Verdict.HANDED_BACK, True)] * 2
        assert "no function run_batch" in outcomes[0].message


async def test_a_model_that_cannot_be_loaded_costs_no_member_an_attempt(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcomes = await Batch(own, {}, {}, name="load_fails").outcomes()
        assert verdicts(outcomes) == [(Verdict.HANDED_BACK, True)] * 2


@pytest.mark.parametrize(("reason", "verdict"), [(Stop.CANCEL, Verdict.CANCELLED), (Stop.FENCED, Verdict.FENCED)])
async def test_one_member_is_stopped_at_its_next_call_and_the_others_complete(
    tmp_path: Path, reason: Stop, verdict: Verdict
) -> None:
    async with rig(tmp_path) as own:
        batch = Batch(own, {"steps": 60, "step_s": 0.02}, {}, {})
        await batch.heard[1].saw(Progress)
        batch.stop(1, reason)
        stopped = await asyncio.wait_for(batch.members[1].outcome, PATIENCE_S)
        assert (stopped.verdict, batch.task.done()) == (verdict, False)

        outcomes = await batch.outcomes()
        assert [outcome.verdict for outcome in outcomes] == [Verdict.COMPLETED, verdict, Verdict.COMPLETED]
        assert max(frame.done or 0 for frame in batch.heard[1].of(Progress)) < 60
        assert batch.heard[1].of(ArtifactFile) == []


async def test_when_all_are_cancelled_the_pass_stops_at_the_next_call_of_any(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        batch = Batch(own, {"steps": 1000, "step_s": 0.02}, {})
        await batch.heard[0].saw(Progress)
        pid = own.slot.child_pid
        for number in range(2):
            batch.stop(number, Stop.CANCEL)
        outcomes = await batch.outcomes()
        assert [(outcome.verdict, outcome.how) for outcome in outcomes] == [(Verdict.CANCELLED, "cooperative")] * 2
        assert own.slot.child_pid == pid


async def test_a_pass_whose_last_member_is_cancelled_and_does_not_listen_is_killed(tmp_path: Path) -> None:
    """The others have ended by then or were cancelled, too: the kill ladder hurts nobody else."""
    async with rig(tmp_path) as own:
        batch = Batch(own, {"how": "hang", "steps": 1}, {})
        await batch.heard[1].saw(Progress)
        for number in range(2):
            batch.stop(number, Stop.CANCEL)
        outcomes = await batch.outcomes()
        assert [(outcome.verdict, outcome.how) for outcome in outcomes] == [(Verdict.CANCELLED, "killed")] * 2
        assert (await own.run("batch")).result == {"size": 1}


async def test_a_drain_hands_all_members_back_and_bars_none_from_batches(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        batch = Batch(own, {"steps": 1000, "step_s": 0.02}, {})
        await batch.heard[0].saw(Progress)
        for number in range(2):
            batch.stop(number, Stop.HAND_BACK)
        assert verdicts(await batch.outcomes()) == [(Verdict.HANDED_BACK, False)] * 2


async def test_a_member_stopped_while_the_model_loads_is_left_out(tmp_path: Path) -> None:
    """What is left is one job: it runs by itself, and for it the usual rules hold."""
    async with rig(tmp_path) as own:
        batch = Batch(own, {}, {})
        await eventually(lambda: bool(batch.heard[1].loads), "loading")
        batch.stop(1, Stop.CANCEL)
        outcomes = await batch.outcomes()
        assert [outcome.verdict for outcome in outcomes] == [Verdict.COMPLETED, Verdict.CANCELLED]
        assert outcomes[0].result == {"size": 1}


async def test_a_crash_of_a_single_job_is_judged_as_ever(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        outcome = await own.run("batch", how="crash")
        assert (outcome.verdict, outcome.code, outcome.signal) == (Verdict.FAILED, "child_crashed", signal.SIGSEGV)
        assert outcome.killed_child

"""How jobs end when things go wrong: retries, refusals, poison, cancels - in the log of a real store."""

from pathlib import Path
from typing import Any

import pytest

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.ids import log_id
from contracts.job import JobStatus
from contracts.store import Store, Word
from services.gpu_worker import finish
from tests.gpu_worker.rig import eventually
from tests.gpu_worker.stage import POOL, Staff, staff


async def run_once(own: Staff, job_id: str, attempt: int = 1) -> ev.Event:
    await own.stage.offer(job_id, own.worker_id)
    return await own.stage.saw("job.attempt_failed", job_id, attempt)


async def test_a_failed_attempt_waits_for_its_retry_and_the_next_one_completes(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("fails_once", marker=str(tmp_path / "marker"))
        failed = await run_once(own, job_id)
        assert isinstance(failed, ev.JobAttemptFailed)
        assert (failed.error.code, failed.will_retry, failed.attempt) == ("internal", True, 1)
        state = await own.stage.state(job_id)
        assert state.status is JobStatus.QUEUED
        assert state.not_before_ms == failed.next_attempt_at_ms
        assert 50 < (failed.next_attempt_at_ms or 0) - (state.started_ms or 0) < 30_000

        await own.stage.offer(job_id, own.worker_id)
        await own.stage.saw("job.completed", job_id)
        state = await own.stage.state(job_id)
        assert (state.attempt, state.fence, state.error_code) == (2, 2, None)
        lines = await own.stage.results(job_id)
        assert lines[0]["error"] == {"code": "internal", "message": "RuntimeError: only this once", "attempt": 1}
        assert lines[1] == {"result": {"attempts": 2}}


async def test_the_last_attempt_ends_the_job(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("fails", max_attempts=2)
        await run_once(own, job_id)
        await run_once(own, job_id, 2)
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert (failed.error.code, failed.attempts, failed.dead_lettered) == ("internal", 2, True)
        record = own.shelf.find(POOL, log_id(job_id, 2))
        assert record is not None
        content = own.shelf.open(POOL, record)
        assert content is not None
        with content:
            assert b"ValueError: the pipeline is broken" in content.read()


@pytest.mark.parametrize(
    ("model", "inputs", "code"),
    [
        ("fails", {"how": "reject"}, "input_rejected"),
        ("bad_result", {"what": "set"}, "result_not_serializable"),
        ("bad_result", {"what": "large"}, "result_too_large"),
    ],
)
async def test_what_cannot_work_is_not_tried_again(
    store: Store, tmp_path: Path, model: str, inputs: dict[str, Any], code: str
) -> None:
    """Field cases 11 and 12: final on the first attempt, and the worker goes on."""
    async with staff(store, tmp_path) as own:
        job_id = await own.give(model, **inputs)
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert (failed.error.code, failed.attempts, failed.dead_lettered) == (code, 1, False)
        healthy = await own.give("echo")
        await own.stage.saw("job.completed", healthy)


async def test_a_job_that_took_two_children_down_is_poison(store: Store, tmp_path: Path) -> None:
    """Field case 37: two crashed attempts are enough; healthy jobs of the same worker succeed."""
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("crash", how=139)
        first = await run_once(own, job_id)
        assert isinstance(first, ev.JobAttemptFailed)
        assert (first.error.code, first.error.exit_code, first.will_retry) == ("child_exited", 139, True)
        await run_once(own, job_id, 2)
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert (failed.error.code, failed.attempts, failed.dead_lettered) == ("poison", 2, True)

        for _ in range(5):
            healthy = await own.give("echo")
            await own.stage.saw("job.completed", healthy)


async def test_a_providers_429_costs_no_attempt_and_is_told_at_once(store: Store, tmp_path: Path) -> None:
    """Field case 34: the device is not held while the provider makes everybody wait."""
    async with staff(store, tmp_path) as own:
        author = "def run(model, inputs, job):\n    raise job.RateLimited('pinecone', retry_after_s=0.1)\n"
        own.serve("echo", author)
        job_id = await own.stage.admit("echo", max_attempts=1)
        for number in (1, 2):
            await own.stage.offer(job_id, own.worker_id)
            queued = await own.stage.saw("job.queued", job_id, number)
            assert isinstance(queued, ev.JobQueued)
            assert (queued.reason, queued.attempt) == ("rate_limited", 0)
            assert (queued.resource, queued.retry_after_ms) == ("pinecone", 100)
        state = await own.stage.state(job_id)
        assert (state.status, state.attempt, state.fence) == (JobStatus.QUEUED, 0, 2)


@pytest.mark.parametrize("tell", [True, False], ids=["by message", "by heartbeat"])
async def test_a_running_job_is_cancelled(store: Store, tmp_path: Path, tell: bool) -> None:
    """Field case 52: wired through to the process; the heartbeat's answer is a second way if the message is lost."""
    async with staff(store, tmp_path) as own:
        job_id = await own.give("slow", steps=100000, step_s=0.01)
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id, tell=tell)
        cancelled = await own.stage.saw("job.cancelled", job_id)
        assert isinstance(cancelled, ev.JobCancelled)
        assert cancelled.how == "cooperative"
        state = await own.stage.state(job_id)
        assert state.status is JobStatus.CANCELLED
        assert (state.done_ms or 0) - (state.cancel_requested_ms or 0) < 5_000


async def test_a_job_that_does_not_listen_is_killed(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.give("ignores_cancel", term=True)
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id)
        cancelled = await own.stage.saw("job.cancelled", job_id)
        assert isinstance(cancelled, ev.JobCancelled)
        assert cancelled.how == "killed"


async def test_a_cancel_while_the_model_loads_ends_the_job_unrun(store: Store, tmp_path: Path) -> None:
    """Field case 53: cancelled between the accepted start and the handler: author code of the job never runs."""
    loaded = f"os.path.exists({str(tmp_path / 'loaded')!r})"
    author = f"import os, time\ndef load(device, prepared):\n    while not {loaded}:\n        time.sleep(0.01)\n"
    author += f"def run(model, inputs, job):\n    open({str(tmp_path / 'ran')!r}, 'w')\n"
    async with staff(store, tmp_path) as own:
        own.serve("echo", author)
        job_id = await own.give("echo")
        await own.stage.saw("job.started", job_id)
        await own.stage.cancel(job_id)
        run = own.lanes[0].slot._run
        await eventually(lambda: run is not None and run.ladder is not None, "the worker has heard of it")
        (tmp_path / "loaded").touch()
        await own.stage.saw("job.cancelled", job_id)
        assert not (tmp_path / "ran").exists()


async def test_a_failure_after_a_cancel_is_a_cancellation(store: Store, tmp_path: Path) -> None:
    author = "import os, time\ndef run(model, inputs, job):\n    job.progress(0, 1)\n"
    author += (
        f"    while not os.path.exists({str(tmp_path / 'go')!r}):\n        time.sleep(0.01)\n    raise ValueError\n"
    )
    async with staff(store, tmp_path, heartbeat_s=600) as own:
        own.serve("echo", author)
        job_id = await own.give("echo")
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id, tell=False)
        (tmp_path / "go").touch()
        await own.stage.saw("job.cancelled", job_id)
        assert (await own.stage.types(job_id))[-2:] == ["job.attempt_failed", "job.cancelled"]
        assert (await own.stage.state(job_id)).status is JobStatus.CANCELLED


async def test_a_result_wins_over_a_cancel_that_came_too_late(store: Store, tmp_path: Path) -> None:
    """Field case 54: at and after completion a cancel changes nothing, also not for the next job."""
    async with staff(store, tmp_path) as own:
        for _ in range(20):
            job_id = await own.give("noop")
            await own.stage.saw("job.started", job_id)
            await own.stage.cancel(job_id)
            await own.stage.ended(job_id)
        last = await own.give("noop")
        await own.stage.saw("job.completed", last)


async def test_a_fenced_attempt_stops_and_says_nothing(store: Store, tmp_path: Path) -> None:
    """The late writes of a former owner are refused; the refusal itself is recorded once."""
    async with staff(store, tmp_path) as own:
        job_id = await own.give("slow", steps=100000, step_s=0.01)
        await own.stage.saw("job.progress", job_id)
        assert await own.stage.reclaim(job_id) is Word.APPLIED
        other = await own.give("echo")
        await own.stage.saw("job.completed", other)
        types = await own.stage.types(job_id)
        assert [t for t in types[types.index("job.attempt_failed") + 1 :] if t != "job.event_rejected"] == []
        assert types.count("job.event_rejected") <= 1
        await eventually(lambda: own.lanes[0].held == [], "nothing is held any more")


async def test_a_run_time_limit_is_a_failure_with_its_own_code(store: Store, tmp_path: Path) -> None:
    """Field cases 56 and 57: the limit ends a handler that never returns, and the retry rule applies."""
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("hang", timeout_ms=300)
        failed = await run_once(own, job_id)
        assert isinstance(failed, ev.JobAttemptFailed)
        assert (failed.error.code, failed.will_retry) == ("execution_timeout", True)


async def test_a_model_this_worker_does_not_have_is_a_load_failure(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("echo", reference="nowhere@7")
        failed = await run_once(own, job_id)
        assert isinstance(failed, ev.JobAttemptFailed)
        assert failed.error.code == "model_load_failed"


async def test_files_over_the_limit_are_rejected_for_good(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, scratch_bytes=500) as own:
        job_id = await own.give("artifacts")
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert failed.error.code == "artifact_rejected"


@pytest.mark.parametrize("listens", [True, False])
async def test_what_a_cancelled_attempt_had_handed_over_is_kept_and_marked(
    store: Store, tmp_path: Path, listens: bool
) -> None:
    author = (
        "import time\n"
        "def run(model, inputs, job):\n"
        "    job.artifact('half.png', b'half a picture', kind='image')\n"
        "    job.artifact('thumb.png', b'small', variant='thumbnail')\n"
        "    job.progress(1, 2)\n"
        f"    while True:\n        time.sleep(0.01)\n        {'job.progress(1, 2)' if listens else 'pass'}\n"
    )
    async with staff(store, tmp_path) as own:
        own.serve("echo", author)
        job_id = await own.give("echo")
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id)
        cancelled = await own.stage.saw("job.cancelled", job_id)

        assert isinstance(cancelled, ev.JobCancelled)
        assert cancelled.how == ("cooperative" if listens else "killed")
        assert cancelled.at_step == 1
        kept = cancelled.partial_artifacts or ()
        assert [(one.variant, one.bytes) for one in kept] == [("original", 14), ("thumbnail", 5)]
        for one in kept:
            assert own.shelf.find(POOL, one.id) is not None
        types = await own.stage.types(job_id)
        assert types.count("artifact.uploaded") == 2
        assert types.index("job.device_released") < types.index("artifact.upload_started")
        assert types[-1] == "job.cancelled"


async def test_a_store_that_is_away_does_not_hold_up_a_cancel(store: Store, tmp_path: Path) -> None:
    author = "def run(model, inputs, job):\n    job.artifact('a', b'x')\n    while True: job.progress(1, 2)\n"
    async with staff(store, tmp_path) as own:
        own.serve("echo", author)
        (own.config.data_dir / "artifacts").write_text("a file where the directory should be")
        job_id = await own.give("echo")
        await own.stage.saw("job.progress", job_id)
        await own.stage.cancel(job_id)
        cancelled = await own.stage.saw("job.cancelled", job_id)
        assert isinstance(cancelled, ev.JobCancelled)
        assert cancelled.partial_artifacts is None


def taken_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("taken/*") if path.is_file()]


async def test_files_that_could_not_be_stored_do_not_stay_on_the_workers_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away for long would fill the disk of a worker that lives for months: file by file, log by log."""
    monkeypatch.setattr(finish, "UPLOAD_TRIES", 2)
    away = tmp_path / "away"
    away.write_text("a file where the directory should be")
    async with staff(store, tmp_path, shelf=Shelf(LocalObjects(away))) as own:
        job_id = await own.stage.admit("artifacts")
        await own.stage.offer(job_id, own.worker_id)
        failed = await own.stage.saw("job.attempt_failed", job_id)
        assert isinstance(failed, ev.JobAttemptFailed)
        assert (failed.error.code, failed.error.retryable) == ("artifact_upload_failed", True)
        assert taken_below(tmp_path) == []

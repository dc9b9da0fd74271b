"""After the device part: store the files, settle, tidy up. Runs beside the next job of the slot.

Promises: a file's record exists before the event that names it; a settle is repeated until the store has answered; a
cancel that was requested meanwhile turns failures and hand-backs into a cancellation, never a result.
"""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path

import structlog

from contracts import events as ev
from contracts.retry import Backoff
from contracts.store import Word
from contracts.store.jobs import Jobs
from services.gpu_worker import settlement
from services.gpu_worker.artifacts import ArtifactRejected, Intake, size_of
from services.gpu_worker.comparing import Comparing
from services.gpu_worker.pins import ModelPins
from services.gpu_worker.process.frames import ArtifactFile
from services.gpu_worker.profiles import Profiles
from services.gpu_worker.removal import remove_tree
from services.gpu_worker.running import Running, log_path
from services.gpu_worker.settlement import Ending, Facts
from services.gpu_worker.slots.outcome import Outcome, Verdict
from services.gpu_worker.writer import unless_over, until_answered

UPLOAD_TRIES = 4
LOG_S = 5.0  # a store that hangs delays the end of an attempt by no more
PARTIAL_S = 10.0  # for the files of a cancelled attempt
UPLOAD_BACKOFF = Backoff(base_ms=200, cap_ms=5_000)
KEPT_LOGS = 200
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Desk:
    """What settling needs."""

    jobs: Jobs
    intake: Intake
    backoff: Backoff
    scratch_bytes: int
    log_dir: Path
    profiles: Profiles
    pins: ModelPins
    comparing: Comparing
    draining: asyncio.Event
    over: asyncio.Event


async def finish(desk: Desk, running: Running, outcome: Outcome) -> None:
    """Bring an attempt to its last event, and tell if it took more than is known. Raises GaveUp."""
    profiled = desk.profiles.judge(running, outcome)  # first of all: the runs of a child are judged in their order
    await running.previews.close()
    await running.live_log.stop()
    if outcome.verdict is not Verdict.FENCED:
        await _keep_log(desk, running, outcome)
        await _settle(desk, running, outcome)
    if profiled is not None:
        await desk.profiles.tell(profiled, desk.over)


async def tidy(desk: Desk, running: Running, outcome: Outcome) -> bool:
    """Empty the scratch directory; returns whether it can be used again.

    The log of a failure is kept here if it could not be stored.
    """
    if outcome.log_bytes == 0 and is_empty(running.scratch):  # as most are: no thread is needed
        return True
    kept = desk.log_dir / f"{running.right.job_id}.{running.right.fence}.log"
    needed = outcome.verdict is Verdict.FAILED and not running.is_log_stored
    return await asyncio.to_thread(_tidy, running.scratch, kept if needed else None)


async def _settle(desk: Desk, running: Running, outcome: Outcome) -> None:
    if outcome.verdict in (Verdict.COMPLETED, Verdict.CANCELLED) and running.files:
        await _announce_uploads(running, outcome)
    said = () if running.released else (device_released(running, outcome),)
    outcome, uploaded, ending = await _judge(desk, running, outcome)
    word = await _write(running, (*said, *uploaded, *ending.events), ending)
    if word is Word.CONFLICT:
        kept, uploaded = await _keep_partial(desk, running)
        ending = settlement.with_partial(
            settlement.cancelled_instead(ending, outcome), kept, running.writer.telemetry.step
        )
        word = await _write(running, (*said, *uploaded, *ending.events), ending)
    job_id, fence = running.key
    log.info("attempt_settled", job=job_id, fence=fence, verdict=outcome.verdict, code=outcome.code, word=word)


async def _keep_log(desk: Desk, running: Running, outcome: Outcome) -> None:
    """Store what was printed, before the event that ends the attempt; a store that is away costs the log only."""
    if outcome.log_bytes == 0 and not running.right.offer.batch:  # what a batch printed may not be counted yet
        return
    if running.is_log_withheld or not (running.log_at.exists() or running.log_path.exists()):
        return
    try:
        async with asyncio.timeout(LOG_S):
            await desk.intake.store_copy((running.log_at, running.log_path), running.log_upload())
        running.is_log_stored = True
        await running.live_log.say_stored()
    except OSError as error:
        log.warning("log_not_stored", job=running.right.job_id, detail=error.strerror)


async def _judge(desk: Desk, running: Running, outcome: Outcome) -> tuple[Outcome, tuple[ev.Event, ...], Ending]:
    """Store the files of a completed attempt; return what it is now, what to say of the files, and its ending."""
    if outcome.verdict is Verdict.COMPLETED:
        begun_ms = running.elapsed_ms
        try:
            stored, uploaded = await _upload_all(desk, running)
            upload_ms = running.elapsed_ms - begun_ms
            return outcome, uploaded, await _completed(desk, running, outcome, stored, upload_ms)
        except ArtifactRejected as error:
            outcome = _spoilt(outcome, "artifact_rejected", str(error), retryable=False)
        except OSError as error:
            outcome = _spoilt(outcome, "artifact_upload_failed", f"a file could not be stored: {error.strerror}", True)
    ending = settlement.settle(outcome, await _facts(desk, running, outcome))
    if outcome.verdict is not Verdict.CANCELLED:
        return outcome, (), ending
    kept, uploaded = await _keep_partial(desk, running)
    return outcome, uploaded, settlement.with_partial(ending, kept, running.writer.telemetry.step)


def _spoilt(outcome: Outcome, code: str, message: str, retryable: bool) -> Outcome:
    return outcome._replace(verdict=Verdict.FAILED, code=code, message=message, retryable=retryable)


async def _write(running: Running, events: tuple[ev.Event, ...], ending: Ending) -> Word:
    return await running.writer.write(
        events, line=ending.line, closes=ending.closes, not_cancelled=ending.unless_cancelled
    )


async def _completed(
    desk: Desk, running: Running, outcome: Outcome, stored: tuple[ev.ArtifactRef, ...], upload_ms: int
) -> Ending:  # fmt: skip
    timings = ev.Timings(
        model_load_ms=running.load_ms or 0,
        run_ms=round(outcome.run_ms),
        upload_ms=upload_ms,
        gpu_seconds=running.gpu_ms / 1000,
    )
    said = ev.JobCompleted(artifacts=stored, timings=timings, attempt=running.right.attempt)
    return settlement.completed(outcome, await _pinned(desk, running, outcome, said), running.file_digests)


async def _pinned(desk: Desk, running: Running, outcome: Outcome, said: ev.JobCompleted) -> ev.JobCompleted:
    """Add what the attempt ran with, and how near it came if it was to give another one's result again."""
    right, device, asked = running.right, desk.profiles.device(running), running.asked
    if asked is None:
        return said
    was_loaded = running.load_ms is not None
    manifest = await desk.pins.manifest(asked.model, device, running.batch_size, was_loaded=was_loaded)
    pins, verdict = running.pins, None
    if pins is not None:
        comparing = desk.comparing.judge(pins, manifest, right.pool, said.artifacts, outcome.result)
        verdict = await unless_over(comparing, desk.over)
    return said.model_copy(update={"manifest": manifest, "reproduction": verdict})


async def _announce_uploads(running: Running, outcome: Outcome) -> None:
    """Say that the device is free before the files are on their way."""
    events: list[ev.Event] = [] if running.released else [device_released(running, outcome)]
    for index, file in enumerate(running.files):
        upload = running.upload(index, file)
        size_bytes = await asyncio.to_thread(size_of, running.scratch, file.file)
        events.append(
            ev.ArtifactUploadStarted(artifact_id=upload.id, kind=upload.kind, variant=upload.variant, bytes=size_bytes)
        )
    running.released = True
    await running.writer.write(events)
    running.freed.set()


async def _upload_all(desk: Desk, running: Running) -> tuple[tuple[ev.ArtifactRef, ...], tuple[ev.Event, ...]]:
    left_bytes = desk.scratch_bytes
    stored: list[ev.ArtifactRef] = []
    events: list[ev.Event] = []
    for index, file in enumerate(running.files):
        reference, ms = await _upload(desk, running, index, file, left_bytes)
        left_bytes -= reference.bytes
        stored.append(reference)
        events.append(ev.ArtifactUploaded(artifact=reference, ms=ms))
        if reference.variant == "thumbnail":
            events.append(ev.ThumbnailReady(artifact=reference))
    return tuple(stored), tuple(events)


async def _keep_partial(desk: Desk, running: Running) -> tuple[tuple[ev.ArtifactRef, ...], tuple[ev.Event, ...]]:
    """Store what a cancelled attempt had handed over, each file once: whoever cancels does not wait for long."""
    left_bytes, stored = desk.scratch_bytes, list[ev.ArtifactRef]()
    events: list[ev.Event] = []
    try:
        async with asyncio.timeout(PARTIAL_S):
            for index, file in enumerate(running.files):
                begun_ms = running.elapsed_ms
                upload = running.upload(index, file)
                put = desk.intake.store(running.scratch, file.file, upload, left_bytes)
                try:
                    reference = await put
                except ArtifactRejected as error:
                    log.info("partial_artifact_rejected", job=upload.job_id, detail=str(error))
                    continue
                left_bytes -= reference.bytes
                stored.append(reference)
                events.append(ev.ArtifactUploaded(artifact=reference, ms=running.elapsed_ms - begun_ms))
    except OSError as error:  # also the time that is over
        log.warning("partial_artifacts_not_stored", job=running.right.job_id, detail=error.strerror)
        for index, file in enumerate(running.files):
            await desk.intake.discard(running.upload(index, file).id)
    return tuple(stored), tuple(events)


async def _upload(
    desk: Desk, running: Running, index: int, file: ArtifactFile, limit_bytes: int
) -> tuple[ev.ArtifactRef, int]:
    """Store one file, again after a while if the store cannot take it. Raises OSError, ArtifactRejected, GaveUp."""
    upload, begun_ms = running.upload(index, file), running.elapsed_ms
    for number in range(1, UPLOAD_TRIES + 1):
        try:
            put = desk.intake.store(running.scratch, file.file, upload, limit_bytes)
            reference = await unless_over(put, desk.over)
            return reference, running.elapsed_ms - begun_ms
        except OSError as error:
            log.warning("artifact_not_stored", job=upload.job_id, number=number, detail=error.strerror)
            if number == UPLOAD_TRIES:
                await desk.intake.discard(upload.id)
                raise
        pause_s = UPLOAD_BACKOFF.delay_ms(number, random.random()) / 1000
        await unless_over(asyncio.sleep(pause_s), desk.over)
    raise AssertionError


async def _facts(desk: Desk, running: Running, outcome: Outcome) -> Facts:
    right, ended = running.right, 0
    if outcome.killed_child and right.attempt > 1:

        async def read() -> int:
            history = await desk.jobs.history(right.pool, right.job_id)
            return settlement.children_ended(history.entries) if history else 0

        ended = await until_answered(read, read, desk.over)
    return Facts(
        worker_id=right.worker_id,
        attempt=right.attempt,
        max_attempts=right.offer.max_attempts,
        gpu_ms=running.gpu_ms,
        now_ms=running.now_ms,
        delay_ms=desk.backoff.delay_ms(right.attempt, random.random()),
        children_ended=ended,
        phase=running.writer.telemetry.phase,
        alone=right.offer.alone,
    )


def device_released(running: Running, outcome: Outcome) -> ev.JobDeviceReleased:
    return ev.JobDeviceReleased(gpu_ms=running.gpu_ms, peak_bytes=outcome.peak_bytes)


def is_empty(folder: Path) -> bool:
    """Tell whether it is a directory with nothing in it, and not what author code put in its place."""
    try:
        with os.scandir(folder) as entries:
            return not os.path.islink(folder) and next(entries, None) is None
    except OSError:
        return False


def _tidy(scratch: Path, kept_log: Path | None) -> bool:
    remove_tree(scratch)
    written = log_path(scratch)
    if kept_log is not None and written.exists():
        kept_log.parent.mkdir(parents=True, exist_ok=True)
        written.replace(kept_log)
        for old in sorted(kept_log.parent.glob("*.log"))[:-KEPT_LOGS]:
            old.unlink(missing_ok=True)
    written.unlink(missing_ok=True)
    try:
        scratch.mkdir()
    except OSError:  # something in it cannot be removed, or the disk is full
        return False
    return True

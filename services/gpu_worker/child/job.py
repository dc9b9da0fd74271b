"""What author code sees as `job`, and one pass of author code from its first line to its end frames.

Promises: a flood of calls is thinned or refused here, each in a documented way (PROTOCOL.md); a cancel is noticed at
the next call; what comes after the end is dropped. Standard library only.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from typing import Any, Callable  # noqa: UP035 - older interpreters cannot subscript collections.abc.Callable

from .ends import Cancelled, RateLimited, Reject, Retry, done, ended_by
from .values import clean, event_data, finite, picture_ending, pixels

RESULT_LIMIT_BYTES = 64 << 10  # unless `load` names another limit
NAME_LIMIT_CHARS = 64
LOSSY_GAP_S = 0.1  # at most 10 progress frames and 10 previews a second
FORCED_LIMIT_COUNT = 500  # progress frames that pass the gap because the phase changed or the work ended
MILESTONE_LIMIT_COUNT = 500
ARTIFACT_LIMIT_COUNT = 100
OUT_FOLDER = ".out"  # below the scratch directory; files handed over lie here under names of ours


class Job:
    """Author code's view of its attempt. Every call notices a cancel; calls after the end are ignored."""

    Reject, RateLimited, Retry = Reject, RateLimited, Retry  # to raise; from run_batch() to return for one job

    def __init__(self, frame: dict[str, Any], send: Callable[..., None]) -> None:
        self.id: str = frame["job"]
        self.dir: str = frame["dir"]  # scratch and working directory of run(); removed after the attempt
        self.cancelled = False
        self._key = {"job": frame["job"], "fence": frame["fence"]}
        self._inputs, self._write, self._over = frame["inputs"], send, False
        self._phase: str | None = None
        self._sent_at = {"progress": -math.inf, "preview": -math.inf}
        self._counts = {"forced": 0, "milestone": 0, "artifact": 0, "file": 0}

    def progress(self, done: float, total: float | None = None, phase: str | None = None, **data: Any) -> None:
        """Report `done` of `total`; sent 10 times a second, the first, last and each new phase always."""
        if self._is_over():
            return
        done, total = finite(done), finite(total)
        changed = phase not in (None, self._phase) or self._sent_at["progress"] == -math.inf
        forced = (changed or (done is not None and done == total)) and self._count("forced") <= FORCED_LIMIT_COUNT
        self._phase = self._phase if phase is None else clean(phase, NAME_LIMIT_CHARS)
        if forced or self._due("progress"):
            self._sent_at["progress"] = time.monotonic()
            frame = {"ev": "progress", "done": done, "total": total, "phase": self._phase}
            self._send({**frame, "data": event_data(data)} if data else frame, lossy=not forced)

    def milestone(self, name: str, **data: Any) -> None:
        """Record that `name` was reached. Beyond the limit the end frame counts what was dropped."""
        if not self._is_over() and self._count("milestone") <= MILESTONE_LIMIT_COUNT:
            name = clean(name, NAME_LIMIT_CHARS)
            self._send({"ev": "milestone", "name": name, "data": event_data(data)})

    def preview(self, source: Any, step: int | None = None) -> None:
        """Show a picture (path or bytes) of the work so far; lossy, only the newest is kept."""
        if not self._is_over() and self._due("preview"):
            self._sent_at["preview"] = time.monotonic()
            is_path = isinstance(source, (str, os.PathLike))
            name = os.path.basename(source) if is_path else "preview" + picture_ending(source)
            frame = {"ev": "preview", "name": clean(name), "file": self._keep(source), "step": finite(step)}
            self._send(frame, lossy=True)

    def artifact(
        self, name: str, source: Any, kind: str = "file", variant: str = "original", **size: int | None
    ) -> None:
        """Hand over a result file (bytes or a path, copied now); `width`, `height` are for the record."""
        if self._is_over():
            return
        if self._count("artifact") > ARTIFACT_LIMIT_COUNT:
            raise RuntimeError(f"more than {ARTIFACT_LIMIT_COUNT} artifacts in one attempt")
        frame = {"ev": "artifact", "name": clean(os.path.basename(name)), "file": self._keep(source)}
        sides = {side: known for side in ("width", "height") if (known := pixels(size.get(side))) is not None}
        labels = {"kind": clean(kind, NAME_LIMIT_CHARS), "variant": clean(variant, NAME_LIMIT_CHARS)}
        self._send({**frame, **labels, **sides})

    def _is_over(self) -> bool:
        """Notice a cancel; then tell whether nobody listens any more."""
        if self.cancelled and not self._over:
            raise Cancelled
        return self._over

    def _count(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    def _due(self, what: str) -> bool:
        return time.monotonic() - self._sent_at[what] >= LOSSY_GAP_S

    def _keep(self, source: Any) -> str:
        """Copy `source` to where author code will not overwrite it and return the file's name there."""
        folder, name = os.path.join(self.dir, OUT_FOLDER), f"{self._count('file'):04d}"
        os.makedirs(folder, exist_ok=True)
        if isinstance(source, (str, os.PathLike)):
            shutil.copyfile(source, os.path.join(folder, name))
        else:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(source)
        return name

    def _send(self, frame: dict[str, Any], lossy: bool = False) -> None:
        if not self._over:
            self._write({**frame, **self._key}, lossy)

    def _end(self, frame: dict[str, Any], run_s: float) -> None:
        self._over = True  # a thread of the author may still hold this object
        dropped = max(0, self._counts["milestone"] - MILESTONE_LIMIT_COUNT)
        self._write({**frame, **self._key, "run_ms": round(run_s * 1000, 3), "dropped_milestones": dropped})


class Member(Job):
    """A job of a batch: cancelled, it ends by itself at its next call, and the others go on."""

    def __init__(self, frame: dict[str, Any], send: Callable[..., None], batch: list[Member]) -> None:
        super().__init__(frame, send)
        self._batch, self._begun = batch, time.perf_counter()  # the batch is empty once its pass is over

    def _is_over(self) -> bool:
        if self.cancelled and not self._over:
            self._end({"ev": "cancelled"}, time.perf_counter() - self._begun)
        if self._batch and all(member.cancelled for member in self._batch):
            raise Cancelled
        return self._over


def attempt(
    run: Callable[[Any, dict[str, Any], Job], Any], model: Any, job: Job, result_bytes: int = RESULT_LIMIT_BYTES
) -> dict[str, Any]:
    """Run author code once and return the end frame, unsent and without (job, fence)."""
    try:
        job._is_over()
        return done(run(model, job._inputs, job), result_bytes)
    except BaseException as error:
        return ended_by(error)


def attempt_batch(
    run_batch: Callable[[Any, list[dict[str, Any]], list[Member]], Any],
    model: Any,
    jobs: list[Member],
    result_bytes: int = RESULT_LIMIT_BYTES,
) -> list[dict[str, Any]]:
    """Run author code once for all jobs and return their end frames; those of jobs that are over are not to be sent.

    What is raised out of it is nobody's in particular: each job that has not ended is to be tried again, alone.
    """
    try:
        for job in jobs:
            job._is_over()
        results = run_batch(model, [job._inputs for job in jobs], list(jobs))
        if not isinstance(results, (list, tuple)) or len(results) != len(jobs):
            raise TypeError(f"run_batch() must return a list with one result for each of its {len(jobs)} jobs")
        return [ended_with(result, job, result_bytes) for result, job in zip(results, jobs)]  # noqa: B905 - old Pythons
    except (Cancelled, RateLimited) as error:  # all were cancelled; or all draw on that resource
        frame = ended_by(error)
    except BaseException as error:
        frame = {**ended_by(error), "alone": True}
    return [dict(frame) for _ in jobs]


def no_run_batch(model: Any, inputs: list[dict[str, Any]], jobs: list[Member]) -> None:
    """Stand in for what the pipeline lacks."""
    raise TypeError("the pipeline has no function run_batch(model, inputs, jobs)")


def ended_with(result: Any, job: Member, result_bytes: int) -> dict[str, Any]:
    """Return the end frame of one job of a batch: an exception in the place of its result fails it alone."""
    if job.cancelled:
        return {"ev": "cancelled"}
    return ended_by(result) if isinstance(result, BaseException) else done(result, result_bytes)

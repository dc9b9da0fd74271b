"""What author code sees as `job`, and what becomes of everything that comes back from it.

Promises: a flood, an odd value or an over-long text from author code is cut, thinned or refused here, each in
a documented way (PROTOCOL.md); every way out of `run()` but the death of the process becomes one end frame.
Standard library only; main.py loads this file by its path, so that no name of ours stands in an author's way.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import math
import os
import re
import shutil
import time
import traceback
from typing import Any, Callable  # noqa: UP035 - older interpreters cannot subscript collections.abc.Callable

RESULT_LIMIT_BYTES = 64 << 10  # unless `load` names another limit
DATA_LIMIT_BYTES = 16 << 10  # of one event's data
TEXT_LIMIT_CHARS = 1000
NAME_LIMIT_CHARS = 64
LOSSY_GAP_S = 0.1  # at most 10 progress frames and 10 previews a second
FORCED_LIMIT_COUNT = 500  # progress frames that pass the gap because the phase changed or the work ended
MILESTONE_LIMIT_COUNT = 500
ARTIFACT_LIMIT_COUNT = 100
LONG_NUMBER = re.compile(r"\d{19}")  # an integer beyond 64 bits has at least these digits
OUT_FOLDER = ".out"  # below the scratch directory; files handed over lie here under names of ours
PICTURES = (
    (b"\x89PNG", ".png"),
    (b"RIFF", ".webp"),
    (b"\xff\xd8", ".jpg"),
    (b"GIF8", ".gif"),
)
AUTHORS_CODES = ("device_unavailable", "content_rejected")  # an author's error may carry one of these as `code`


def load_beside(name: str) -> Any:
    """Import a file of this folder without a name that could stand in an author's way."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location(f"headrace_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


memory_errors = load_beside("memory_errors")


class Cancelled(BaseException):
    """Raised inside author code at its next call on `job`; `except Exception` cannot swallow it."""


class Reject(Exception):
    """The input can never work: the job fails for good."""


class RateLimited(Exception):
    """An outside service said "not now": the job is handed back and costs no attempt."""

    def __init__(self, resource: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"rate limited by {resource}")
        self.resource, self.retry_after_s = resource, retry_after_s


class Retry(Exception):
    """This attempt failed in a way that another one may not."""

    def __init__(self, message: str = "the pipeline asked for a retry", after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Encoded:
    """JSON that is ready: between two jobs nothing is encoded twice."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class NotSerializable(Exception):
    """A value has no place in JSON."""


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
        sides = {side: int(size[side] or 0) for side in ("width", "height") if size.get(side)}
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


def encode(frame: dict[str, Any]) -> bytes:
    """Return the JSON of a frame; an encoded result is put in as it is."""
    result = frame.pop("result", None)
    body = _FRAMES.encode(frame).encode("utf-8", "replace")
    return body if result is None else body[:-1] + b',"result":' + result.body + b"}"


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


def ended_by(error: BaseException) -> dict[str, Any]:
    """Return the end frame of an attempt that author code left by an exception."""
    if isinstance(error, Cancelled):
        return {"ev": "cancelled"}
    if isinstance(error, Reject):
        return failed("input_rejected", error, retryable=False)
    if isinstance(error, RateLimited):
        frame = failed("rate_limited", error)
        return {**frame, "resource": clean(error.resource), "retry_after_s": finite(error.retry_after_s)}
    if isinstance(error, Retry):
        return {**failed("internal", error), "retry_after_s": finite(error.after_s)}
    if isinstance(error, SystemExit):
        return failed("child_exited", f"the pipeline called sys.exit({error.code!r})")
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return {**died_of(error, "artifact_rejected"), "retryable": False}
    return died_of(error, "internal")


def done(result: Any, limit_bytes: int) -> dict[str, Any]:
    if result is not None and not isinstance(result, dict):
        message = f"run() must return a dict or None, not {type(result).__name__}"
        return failed("result_not_serializable", message, retryable=False)
    try:
        body = to_json(result)
    except NotSerializable as error:
        return failed("result_not_serializable", error, retryable=False)
    if len(body) > limit_bytes:
        message = f"{len(body)} bytes, the limit is {limit_bytes}"
        return failed("result_too_large", message, retryable=False)
    return {"ev": "done", "result": Encoded(body)}


def failed(code: str, message: object, retryable: bool = True) -> dict[str, Any]:
    return {"ev": "failed", "code": code, "message": clean(message), "retryable": retryable}


def died_of(error: BaseException, code: str) -> dict[str, Any]:
    """Print the traceback to the job's log, let go of it, and return the `failed` frame."""
    with contextlib.suppress(BaseException):  # no memory to format it: code and message still go out
        traceback.print_exception(type(error), error, error.__traceback__)
    if error.__traceback__ is not None:
        traceback.clear_frames(error.__traceback__)  # the frames would keep a failed run's tensors alive
    named = None
    with contextlib.suppress(Exception):  # an author's own property
        named = getattr(error, "code", None)
    code = named if isinstance(named, str) and named in AUTHORS_CODES else code
    lost_by = memory_errors.lost_by(error)
    frame = failed(lost_by or ("out_of_memory" if memory_errors.is_oom(error) else code), describe(error))
    if lost_by is not None:
        return {**frame, "lost": True}
    memory = memory_errors.figures(error) if frame["code"] == "out_of_memory" else {}
    return {**frame, "memory": memory} if memory else frame


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {memory_errors.text_of(error)}"


def to_json(value: Any) -> bytes:
    """Encode `value` strictly; beyond JSON's own types only numpy and torch scalars and dates are taken."""
    try:
        text = _STRICT.encode(value)
        if LONG_NUMBER.search(text):
            json.loads(text, parse_int=_int64)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # also circular, NaN, lone surrogates
        raise NotSerializable(clean(error)) from None


def scalar(value: Any) -> Any:
    """Return the JSON form of a value that json does not know; raise TypeError if it has none."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON; write bytes and arrays with job.artifact()")


_STRICT = json.JSONEncoder(default=scalar, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_FRAMES = json.JSONEncoder(default=scalar, ensure_ascii=False, separators=(",", ":"))


def _int64(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError("an integer of more than 64 bits is not portable JSON")
    return int(digits)


def picture_ending(data: Any) -> str:
    """Return the file ending for picture bytes, by their first ones."""
    return next((ending for start, ending in PICTURES if bytes(data[:4]).startswith(start)), "")


def event_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return `data` if it fits an event, else a mark: telemetry that is too big or odd must not end a job."""
    try:
        size = len(to_json(data))
    except NotSerializable:
        return {"truncated": True, "reason": "not_serializable"}
    return data if size <= DATA_LIMIT_BYTES else {"truncated": True, "reason": "too_large", "bytes": size}


def clean(text: object, limit_chars: int = TEXT_LIMIT_CHARS) -> str:
    """Return `text` as a short string that every JSON parser takes."""
    said: str = memory_errors.text_of(text)
    return said[:limit_chars].encode("utf-8", "replace").decode()


def finite(number: Any) -> Any:
    """Return `number` (numpy scalars as Python's own), or None where JSON has no word for it."""
    try:
        number = number.item() if hasattr(number, "item") else number
        return number if isinstance(number, (int, float)) and math.isfinite(number) else None
    except Exception:  # of several elements, on a device, or an integer that no float can hold
        return None

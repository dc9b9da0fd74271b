"""The ways out of `run()`: what author code may raise, and the end frame that each of them becomes.

Promises: every way out but the death of the process becomes one frame, and a failed one holds nothing of the run alive.
Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import traceback
from typing import Any

from .memory_errors import figures, is_oom, lost_by, text_of
from .values import Encoded, NotSerializable, clean, finite, to_json

AUTHORS_CODES = ("device_unavailable", "content_rejected")  # an author's error may carry one of these as `code`


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
    lost = lost_by(error)
    frame = failed(lost or ("out_of_memory" if is_oom(error) else code), describe(error))
    if lost is not None:
        return {**frame, "lost": True}
    memory = figures(error) if frame["code"] == "out_of_memory" else {}
    return {**frame, "memory": memory} if memory else frame


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"

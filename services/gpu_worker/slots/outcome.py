"""How an attempt ended: last frame, exit status and our own reason for stopping it become one Outcome.

Pure and total: every combination has exactly one outcome, a lost fence always wins, and a result that was
finished before the stop took effect is kept. Does not decide about retries: that is the job's policy, not the
attempt's.
"""

import signal
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from services.gpu_worker.process.frames import Cancelled, Done, End, Failed, LoadFailed, Memory

OUT_OF_MEMORY, HARDWARE = "out_of_memory", "device_unavailable"
#: What a library says that ends the child for want of memory in a thread of its own, and the exit status then.
LAST_WORDS_OF_OOM = {
    -signal.SIGABRT: "terminate called after throwing an instance of 'std::bad_alloc'",
    127: "cannot allocate memory for thread-local data: ABORT",
}


class Stop(StrEnum):
    """Why the supervisor itself ended an attempt."""

    FENCED = "fenced"  # the store says that this attempt is no longer ours
    CANCEL = "cancel"  # somebody asked for it
    HAND_BACK = "hand_back"  # this worker drains
    TIMEOUT = "timeout"  # timeout_s since run() began
    SILENCE = "silence"  # silence_s since the last progress
    LOAD_TIMEOUT = "load_timeout"  # the model took too long to load
    PROTOCOL = "protocol"  # the child sent something that is no frame

    def outranks(self, other: "Stop | None") -> bool:
        """Tell whether this replaces an earlier reason: a lost fence any, a cancel all but a lost fence."""
        return other is None or (_RANK.get(self, 0) > _RANK.get(other, 0))


_RANK = {Stop.FENCED: 2, Stop.CANCEL: 1}


class Verdict(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDED_BACK = "handed_back"  # costs no attempt
    FENCED = "fenced"  # write nothing


class Outcome(NamedTuple):
    """What the supervisor settles."""

    verdict: Verdict
    code: str | None = None  # of api.md 2.4, only with FAILED and, for a provider's 429 or a lost pass, HANDED_BACK
    message: str = ""
    retryable: bool = True
    killed_child: bool = False  # the child died under this attempt, and not by our hand
    how: str | None = None  # of a cancel: cooperative or killed
    exit_code: int | None = None
    signal: int | None = None
    retry_after_s: float | None = None
    resource: str | None = None
    result: Mapping[str, Any] | None = None
    run_ms: float = 0.0
    dropped_milestones: int = 0
    log_bytes: int = 0  # how much was written to the attempt's log file
    peak_bytes: int | None = None  # most memory above the child's base, where the device can tell
    alone: bool = False  # with HANDED_BACK: the pass failed, so this one is never put into a batch again
    memory: Memory | None = None  # with out_of_memory: bytes requested, free, reserved, as far as they are known
    denied: bool = False  # out of memory, but the device did not have what it should have: no fault of the job


def classify(
    last: End | LoadFailed | None, exit_status: int | None, stop: Stop | None, host_oom: bool = False,
    last_words: str = "",
) -> Outcome:  # fmt: skip
    """Judge an attempt that is over.

    Args:
        last: its end frame, or the child's failure to load, or None if neither came.
        exit_status: of the child (negative = signal), or None while it lives.
        stop: the first reason for which we began to stop it.
        host_oom: whether the kernel's OOM killer struck on this host meanwhile.
        last_words: what the child printed at last.
    """
    if stop is Stop.FENCED:
        return Outcome(Verdict.FENCED)
    if isinstance(last, Done):
        dropped = last.dropped_milestones
        return Outcome(Verdict.COMPLETED, result=last.result, run_ms=last.run_ms, dropped_milestones=dropped)
    if stop is not None:
        return _stopped(stop, last, exit_status)
    if last is not None:
        return _framed(last)
    said = LAST_WORDS_OF_OOM.get(exit_status or 0)
    if said is not None and said in last_words:
        return Outcome(Verdict.FAILED, OUT_OF_MEMORY, f"a library ended the child: {said}")
    return _died(exit_status, host_oom)


def of_member(outcome: Outcome, last: End | LoadFailed | None) -> Outcome:
    """Say what the outcome of a pass means for one of its members, which had `last` as its own end frame.

    What nobody can lay at one member's door costs none of them an attempt: they are tried again, each alone.
    """
    if outcome.verdict is not Verdict.FAILED or (isinstance(last, Failed) and not last.alone):
        return outcome
    return Outcome(Verdict.HANDED_BACK, outcome.code, outcome.message, run_ms=outcome.run_ms, alone=True)


def _stopped(stop: Stop, last: End | LoadFailed | None, exit_status: int | None) -> Outcome:
    run_ms = last.run_ms if isinstance(last, Cancelled | Failed) else 0.0
    match stop:
        case Stop.CANCEL:
            # Also when author code failed on the way out: who cancels wants no retry.
            how = "cooperative" if last is not None else "killed"
            return Outcome(Verdict.CANCELLED, how=how, run_ms=run_ms)
        case Stop.HAND_BACK:
            return Outcome(Verdict.HANDED_BACK, run_ms=run_ms)
        case Stop.TIMEOUT:
            message = "the run took longer than its time limit"
            return Outcome(Verdict.FAILED, "execution_timeout", message, run_ms=run_ms)
        case Stop.LOAD_TIMEOUT:
            return Outcome(Verdict.FAILED, "model_load_failed", "loading the model took too long")
        case Stop.SILENCE:
            message = "no progress for longer than the silence limit"
            return Outcome(Verdict.FAILED, "silence_timeout", message, run_ms=run_ms)
        case _:
            message = "the child broke the protocol and was ended"
            return Outcome(Verdict.FAILED, "child_crashed", message, killed_child=True)


def _framed(last: End | LoadFailed) -> Outcome:
    match last:
        case LoadFailed():
            return Outcome(Verdict.FAILED, last.code, last.message, memory=last.memory)
        case Failed(code="rate_limited"):
            return Outcome(
                Verdict.HANDED_BACK,
                "rate_limited",
                last.message,
                retry_after_s=last.retry_after_s,
                resource=last.resource,
                run_ms=last.run_ms,
            )
        case Failed():
            return Outcome(
                Verdict.FAILED,
                last.code,
                last.message,
                last.retryable,
                killed_child=last.lost is True and last.code != HARDWARE,
                retry_after_s=last.retry_after_s,
                run_ms=last.run_ms,
                memory=last.memory,
            )
        case _:
            return Outcome(Verdict.FAILED, "internal", "the pipeline stopped as if cancelled, nobody asked for it")


def _died(exit_status: int | None, host_oom: bool) -> Outcome:
    if exit_status is None:
        return Outcome(Verdict.FAILED, "internal", "the attempt ended without a word", killed_child=True)
    if exit_status >= 0:
        message = f"the child exited with status {exit_status} in the middle of the attempt"
        return Outcome(Verdict.FAILED, "child_exited", message, killed_child=True, exit_code=exit_status)
    name = signal_name(-exit_status)
    code = "child_crashed" if name != "SIGKILL" else "host_out_of_memory" if host_oom else "killed"
    message = f"the child was ended by {name}"
    return Outcome(Verdict.FAILED, code, message, killed_child=True, signal=-exit_status)


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have none of their own.

    >>> signal_name(11), signal_name(63)
    ('SIGSEGV', 'signal 63')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""How an attempt is closed: its outcome becomes the events that end it. Pure; time, chance and history come in.

Promises: every outcome but a lost fence has exactly one ending; what was cancelled meanwhile ends as cancelled unless
it had completed; a job that took two children down is not tried a third time, and one that found no memory when it had
a device for itself not a second time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import orjson

from contracts import events as ev
from contracts.wire import Entry
from services.gpu_worker.slots.outcome import OUT_OF_MEMORY, Outcome, Verdict

POISON_CHILDREN = 2  # a job that has ended this many children ends itself
MESSAGE_LIMIT_BYTES = 4096
LONGEST_RETRY_AFTER_S = 86_400
_RESOURCE = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the ending needs to know beside the outcome."""

    worker_id: str
    attempt: int
    max_attempts: int
    gpu_ms: int
    now_ms: int  # of the server
    delay_ms: int  # before the next attempt, by the retry schedule
    children_ended: int = 0  # by this job, in earlier attempts of this run
    phase: str | None = None
    alone: bool = False  # it had the whole device, in a fresh child


@dataclass(frozen=True, slots=True)
class Ending:
    """What is emitted. `unless_cancelled`: a requested cancel makes it a CONFLICT, and `cancelled_instead` follows."""

    events: tuple[ev.Event, ...]
    line: bytes = b""
    closes: bool = False
    unless_cancelled: bool = False


def completed(outcome: Outcome, event: ev.JobCompleted, file_digests: Mapping[str, str]) -> Ending:
    """End a job with its result; a cancel that came too late does not undo it.

    Digests of input files tell of what the caller sent: they are in the body, never in the log.
    """
    files = {"files": file_digests} if file_digests else {}
    return Ending((event,), b"\n" + orjson.dumps({"result": outcome.result, **files}), closes=True)


def settle(outcome: Outcome, facts: Facts) -> Ending:
    """Return the ending of an attempt that did not complete."""
    match outcome.verdict:
        case Verdict.CANCELLED:
            return Ending((_cancelled(outcome),), closes=True)
        case Verdict.HANDED_BACK:
            return Ending((_given_back(outcome, facts),), unless_cancelled=True)
        case _:
            return _failed(outcome, facts)


def cancelled_instead(ending: Ending, outcome: Outcome) -> Ending:
    """Return what is written when a cancel was requested before `ending` was."""
    failures = tuple(
        event.model_copy(update={"will_retry": False, "next_attempt_at_ms": None})
        for event in ending.events
        if isinstance(event, ev.JobAttemptFailed)
    )
    return Ending((*failures, _cancelled(outcome)), ending.line, closes=True)


def with_partial(ending: Ending, kept: tuple[ev.ArtifactRef, ...], step: int | None) -> Ending:
    """Mark in the end of a cancelled attempt how far it was, and what of its files is kept."""
    marked = {"partial_artifacts": kept or None, "at_step": step}
    events = tuple(
        event.model_copy(update=marked) if isinstance(event, ev.JobCancelled) else event for event in ending.events
    )
    return replace(ending, events=events)


def children_ended(entries: Iterable[Entry]) -> int:
    """Count the children that a job has ended in its present run, from its events oldest first."""
    count = 0
    for entry in entries:
        event = entry.event()
        if isinstance(event, ev.JobRetried):
            count = 0
        elif isinstance(event, ev.JobAttemptFailed):
            count += has_crashed(event.error)
    return count


def has_crashed(error: ev.ErrorFacts) -> bool:
    """Whether an attempt ended its child; a lost worker's is not among these."""
    return error.exit_code is not None or error.signal is not None or error.code == "child_crashed"


def _failed(outcome: Outcome, facts: Facts) -> Ending:
    error = _error_facts(outcome, facts)
    poisonous = outcome.killed_child and facts.children_ended + 1 >= POISON_CHILDREN
    out_of_memory = outcome.code == OUT_OF_MEMORY
    too_large = out_of_memory and facts.alone and not outcome.denied
    will_retry = error.retryable and not poisonous and not too_large and facts.attempt < facts.max_attempts
    due_ms = facts.now_ms + _delay_ms(outcome, facts) if will_retry else None
    failed = ev.JobAttemptFailed(
        error=error,
        attempt=facts.attempt,
        will_retry=will_retry,
        next_attempt_at_ms=due_ms,
        worker_id=facts.worker_id,
        gpu_ms=facts.gpu_ms,
        alone=(out_of_memory and will_retry) or None,
    )
    line = _error_line(error.code, outcome.message, facts.attempt)
    if will_retry:
        return Ending((failed,), line, unless_cancelled=True)
    final_code = "poison" if poisonous else "too_large" if too_large else None
    final = error.model_copy(update={"code": final_code, "retryable": False}) if final_code else error
    end = ev.JobFailed(error=final, attempts=facts.attempt, dead_lettered=poisonous or final.retryable)
    return Ending((failed, end), line, closes=True, unless_cancelled=True)


def _given_back(outcome: Outcome, facts: Facts) -> ev.JobQueued:
    """Give the attempt back: it was not the job's fault."""
    attempt = facts.attempt - 1
    if outcome.code != "rate_limited":
        alone = outcome.alone or None
        return ev.JobQueued(reason="handed_back", attempt=attempt, worker_id=facts.worker_id, alone=alone)
    named = outcome.resource is not None and _RESOURCE.fullmatch(outcome.resource)  # an author's text
    return ev.JobQueued(
        reason="rate_limited",
        attempt=attempt,
        worker_id=facts.worker_id,
        resource=outcome.resource if named else None,
        retry_after_ms=None if outcome.retry_after_s is None else _retry_after_ms(outcome.retry_after_s),
    )


def _retry_after_ms(seconds: float) -> int:
    return max(0, round(min(seconds, LONGEST_RETRY_AFTER_S) * 1000))


def _error_facts(outcome: Outcome, facts: Facts) -> ev.ErrorFacts:
    memory = outcome.memory or {}
    return ev.ErrorFacts(
        code=outcome.code or "internal",
        retryable=outcome.retryable,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        phase=facts.phase,
        requested_bytes=memory.get("requested"),
        free_bytes=memory.get("free"),
        reserved_bytes=memory.get("reserved"),
    )


def _delay_ms(outcome: Outcome, facts: Facts) -> int:
    if outcome.retry_after_s is None:
        return facts.delay_ms
    return _retry_after_ms(outcome.retry_after_s)


def _cancelled(outcome: Outcome) -> ev.JobCancelled:
    return ev.JobCancelled(how="killed" if outcome.how == "killed" else "cooperative")


def _error_line(code: str, message: str, attempt: int) -> bytes:
    short = message.encode()[:MESSAGE_LIMIT_BYTES].decode(errors="ignore")
    return b"\n" + orjson.dumps({"error": {"code": code, "message": short, "attempt": attempt}})


def handed_back(outcome: Outcome | None = None) -> Outcome:
    """Return the outcome of an attempt that is given back before author code ran."""
    return (outcome or Outcome(Verdict.HANDED_BACK))._replace(verdict=Verdict.HANDED_BACK)

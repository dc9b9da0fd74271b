"""Outcomes become endings: one for each, legal in the state machine, and cancelled where a cancel came first."""

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.job import TRANSITIONS, JobStatus
from contracts.wire import Entry
from services.gpu_worker import settlement
from services.gpu_worker.process.frames import Cancelled, Done, Failed, LoadFailed
from services.gpu_worker.settlement import Ending, Facts
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict, classify, of_member

FRAMES = (
    None,
    Cancelled("job_1", 1, 5.0),
    Failed("job_1", 1, "internal", "boom", True, 5.0, 2.5, None),
    Failed("job_1", 1, "input_rejected", "no", False, 5.0, None, None),
    Failed("job_1", 1, "rate_limited", "429", True, 5.0, 3, "pinecone"),
    LoadFailed("model_load_failed", "no weights"),
    LoadFailed("out_of_memory", "boom", {"requested": 5}),
    Failed("job_1", 1, "out_of_memory", "boom", True, 5.0, None, None, memory={"requested": 5, "free": 1}),
    Failed("job_1", 1, "child_crashed", "boom", True, 5.0, None, None, lost=True),
    Done("job_1", 1, {"x": 1}, 5.0, 0),
)
OUTCOMES = st.builds(
    classify,
    st.sampled_from(FRAMES),
    st.one_of(st.none(), st.integers(-20, 255)),
    st.one_of(st.none(), st.sampled_from(Stop)),
).filter(lambda outcome: outcome.verdict not in (Verdict.FENCED, Verdict.COMPLETED))
FACTS = st.builds(
    Facts,
    worker_id=st.just("wrk_1"),
    attempt=st.integers(1, 5),
    max_attempts=st.integers(1, 5),
    gpu_ms=st.just(10),
    now_ms=st.just(1_000_000),
    delay_ms=st.integers(0, 10_000),
    children_ended=st.integers(0, 2),
    alone=st.booleans(),
)
OOM = Outcome(Verdict.FAILED, "out_of_memory", "boom", memory={"requested": 7, "free": 5, "reserved": 3})
SECOND = Facts("wrk_1", attempt=2, max_attempts=3, gpu_ms=1, now_ms=0, delay_ms=5)


def walk(ending: Ending) -> JobStatus:
    """Follow an ending through the state machine from a running job; an illegal step is a KeyError."""
    status = JobStatus.IN_PROGRESS
    for event in ending.events:
        status = TRANSITIONS[status, event.TYPE]
    return status


@given(OUTCOMES, FACTS)
def test_every_ending_is_legal_and_closes_exactly_what_is_terminal(outcome: Outcome, facts: Facts) -> None:
    ending = settlement.settle(outcome, facts)
    status = walk(ending)
    terminal = status in (JobStatus.FAILED, JobStatus.CANCELLED)
    assert ending.closes == terminal
    assert terminal or status is JobStatus.QUEUED
    assert (outcome.verdict is Verdict.CANCELLED) == (not ending.unless_cancelled)
    if outcome.verdict is Verdict.FAILED and facts.attempt >= facts.max_attempts:
        assert status is JobStatus.FAILED


@given(OUTCOMES, FACTS)
def test_a_cancel_that_came_first_turns_any_ending_into_a_cancellation(outcome: Outcome, facts: Facts) -> None:
    instead = settlement.cancelled_instead(settlement.settle(outcome, facts), outcome)
    assert walk(instead) is JobStatus.CANCELLED
    assert instead.closes
    assert not any(isinstance(event, ev.JobAttemptFailed) and event.will_retry for event in instead.events)


@given(OUTCOMES, FACTS)
def test_no_text_of_an_author_gets_into_the_log(outcome: Outcome, facts: Facts) -> None:
    events = settlement.settle(outcome, facts).events
    assert not any(text in event.to_json() for event in events for text in ("boom", "no weights"))


def test_the_second_dead_child_is_the_last() -> None:
    crash = classify(None, -11, None)
    facts = Facts("wrk_1", attempt=2, max_attempts=10, gpu_ms=1, now_ms=0, delay_ms=5, children_ended=1)
    failed, end = settlement.settle(crash, facts).events
    assert isinstance(failed, ev.JobAttemptFailed)
    assert isinstance(end, ev.JobFailed)
    assert (failed.error.code, failed.error.signal, end.error.code) == ("child_crashed", 11, "poison")


def test_only_dead_children_of_this_run_are_counted() -> None:
    def entry(sequence: int, event: ev.Event) -> Entry:
        return Entry(f"1-{sequence}", event.TYPE, "job_1", event.to_json().encode(), sequence=sequence)

    def attempt_failed(**error: int) -> ev.JobAttemptFailed:
        return ev.JobAttemptFailed(error=ev.ErrorFacts(code="x", **error), attempt=1, will_retry=True)

    crash, failure = attempt_failed(signal=11), attempt_failed()
    again = ev.JobRetried(by="k", from_status="failed", run=2, max_attempts=6)
    events = [crash, crash, again, failure, attempt_failed(exit_code=1)]
    assert settlement.children_ended(entry(i, event) for i, event in enumerate(events)) == 1


def test_an_error_line_is_capped() -> None:
    outcome = Outcome(Verdict.FAILED, "internal", "é" * 10_000)
    facts = Facts("wrk_1", attempt=1, max_attempts=1, gpu_ms=1, now_ms=0, delay_ms=5)
    line = settlement.settle(outcome, facts).line
    assert line.startswith(b"\n")
    assert len(orjson.loads(line)["error"]["message"].encode()) <= settlement.MESSAGE_LIMIT_BYTES


@given(OUTCOMES, FACTS, st.sampled_from(FRAMES))
def test_a_member_that_did_not_fail_by_itself_is_queued_again_alone_for_nothing(
    outcome: Outcome, facts: Facts, last: Cancelled | Done | Failed | LoadFailed | None
) -> None:
    """A pass that was lost blames nobody: no attempt, no poison, and never a batch again."""
    mine = of_member(outcome, last)
    if outcome.verdict is not Verdict.FAILED or isinstance(last, Failed):
        assert mine == outcome
        return
    (event,) = settlement.settle(mine, facts).events
    assert isinstance(event, ev.JobQueued)
    assert (event.reason, event.attempt, event.alone) == ("handed_back", facts.attempt - 1, True)


def test_out_of_memory_is_tried_again_alone_with_what_the_error_said() -> None:
    (failed,) = settlement.settle(OOM, SECOND).events
    assert isinstance(failed, ev.JobAttemptFailed)
    assert (failed.will_retry, failed.alone, failed.next_attempt_at_ms) == (True, True, 5)
    error = failed.error
    assert (error.requested_bytes, error.free_bytes, error.reserved_bytes) == (7, 5, 3)


def test_out_of_memory_with_the_whole_device_is_too_large_for_good() -> None:
    failed, end = settlement.settle(OOM, replace(SECOND, alone=True)).events
    assert isinstance(failed, ev.JobAttemptFailed)
    assert isinstance(end, ev.JobFailed)
    assert (failed.error.code, failed.will_retry, failed.alone) == ("out_of_memory", False, None)
    assert (end.error.code, end.error.retryable, end.dead_lettered) == ("too_large", False, False)
    assert end.error.requested_bytes == 7


def test_a_device_that_had_less_than_promised_makes_no_job_too_large() -> None:
    """Field case 63: none is failed for good by a device that somebody else fills."""
    (failed,) = settlement.settle(OOM._replace(denied=True), replace(SECOND, alone=True)).events
    assert isinstance(failed, ev.JobAttemptFailed)
    assert (failed.will_retry, failed.alone) == (True, True)


def test_without_attempts_left_out_of_memory_ends_a_job_under_its_own_name() -> None:
    _, end = settlement.settle(OOM, replace(SECOND, max_attempts=2)).events
    assert isinstance(end, ev.JobFailed)
    assert (end.error.code, end.dead_lettered) == ("out_of_memory", True)


@given(OUTCOMES, FACTS)
def test_only_out_of_memory_asks_for_a_device_alone(outcome: Outcome, facts: Facts) -> None:
    asked = any(
        isinstance(event, ev.JobAttemptFailed) and event.alone for event in settlement.settle(outcome, facts).events
    )
    assert not asked or (outcome.code == "out_of_memory" and not facts.alone)


def test_a_process_lost_on_the_device_counts_as_a_child_and_a_lost_worker_never_does() -> None:
    """Field case 37: two crashed children make poison; a worker that was lost is nobody's crash."""
    codes = ("child_crashed", "worker_lost", "device_unavailable", "out_of_memory")
    failures = [ev.JobAttemptFailed(error=ev.ErrorFacts(code=code), attempt=1, will_retry=True) for code in codes]
    entries = [Entry(f"1-{i}", event.TYPE, "job_1", event.to_json().encode()) for i, event in enumerate(failures)]
    assert [settlement.children_ended([entry]) for entry in entries] == [1, 0, 0, 0]

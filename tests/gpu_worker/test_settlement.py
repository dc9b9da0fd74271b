"""Outcomes become endings: one for each, legal in the state machine, and cancelled where a cancel came first."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.job import TRANSITIONS, JobStatus
from contracts.wire import Entry
from services.gpu_worker import settlement
from services.gpu_worker.settlement import Ending, Facts
from services.gpu_worker.slots.frames import Cancelled, Done, Failed, LoadFailed
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict, classify, of_member

FRAMES = (
    None,
    Cancelled("job_1", 1, 5.0),
    Failed("job_1", 1, "internal", "boom", True, 5.0, 2.5, None),
    Failed("job_1", 1, "input_rejected", "no", False, 5.0, None, None),
    Failed("job_1", 1, "rate_limited", "429", True, 5.0, 3, "pinecone"),
    LoadFailed("model_load_failed", "no weights"),
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
)


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

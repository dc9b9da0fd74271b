"""The state machine: one table, a total fold, terminal states that absorb."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.errors import Corrupt
from contracts.events import CATALOGUE
from contracts.job import FIELDS, TERMINAL, TRANSITIONS, JobState, JobStatus
from contracts.job_fold import evolve, fold
from contracts.wire import Entry

JOB = "job_01jd0000000000000000000000aa"
CREATED = ev.JobCreated(tenant_id="t_a", model="echo@1", timeout_ms=1000, start_by_ms=60_000)


def entry(event: ev.Event, sequence: int, fence: int = 0, ms: int = 1_000) -> Entry:
    return Entry(f"{ms}-{sequence}", event.TYPE, JOB, event.to_json().encode(), sequence=sequence, fence=fence)


LIFE = [
    entry(CREATED, 1),
    entry(ev.JobAssigned(worker_id="wrk_a", offer_id="o1", slot=2, device="cpu"), 2),
    entry(ev.JobStarted(worker_id="wrk_a", offer_id="o1", slot=2, device="cpu", attempt=1), 3, 1, 5_000),
    entry(ev.JobProgress(progress=50, step=1, total_steps=2, phase="denoising"), 4, 1),
    entry(ev.JobQueued(reason="handed_back", attempt=0), 5, 1),
    entry(ev.JobStarted(worker_id="wrk_b", offer_id="o2", slot=0, device="cpu", attempt=1), 6, 2),
    entry(ev.JobCompleted(attempt=1, timings=ev.Timings(run_ms=7)), 7, 2, 9_000),
]


def test_a_hand_back_gives_the_attempt_back_and_keeps_the_fence_rising() -> None:
    handed_back = fold(JOB, LIFE[:5])

    assert (handed_back.status, handed_back.attempt, handed_back.fence) == (JobStatus.QUEUED, 0, 1)
    assert (handed_back.worker_id, handed_back.step, handed_back.progress) == (None, None, 0.0)


def test_a_start_removes_all_offers_and_stamps_the_server_time() -> None:
    assigned, started = fold(JOB, LIFE[:2]), fold(JOB, LIFE[:3])

    assert assigned.offers == {"o1": ("wrk_a", 2)}
    assert (started.offers, started.started_ms, started.fence) == ({}, 5_000, 1)
    assert assigned.start_by_at_ms == 1_000 + 60_000


def test_a_completed_job_shows_its_timings_and_a_hundred_percent() -> None:
    done = fold(JOB, LIFE)

    assert (done.status, done.progress, done.done_ms, done.timings.run_ms) == (JobStatus.COMPLETED, 100.0, 9_000, 7)
    assert done.terminal


@given(st.integers(min_value=0, max_value=len(LIFE)))
def test_folding_a_prefix_and_then_the_rest_is_folding_all(cut: int) -> None:
    state = fold(JOB, LIFE[:cut])
    for later in LIFE[cut:]:
        state = evolve(state, later)

    assert state == fold(JOB, LIFE)


def test_a_gap_in_the_sequence_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="event 3 follows 1"):
        fold(JOB, [LIFE[0], LIFE[2]])


@given(st.sampled_from(sorted(TERMINAL)), st.sampled_from(sorted(CATALOGUE)))
def test_a_terminal_state_is_left_only_by_a_new_run(status: JobStatus, event_type: str) -> None:
    target = TRANSITIONS.get((status, event_type))

    assert target in (None, status) or event_type == "job.retried"


def test_every_transition_names_an_event_of_the_catalogue_and_every_state_is_reachable() -> None:
    assert {event_type for _, event_type in TRANSITIONS} <= set(CATALOGUE)
    assert set(TRANSITIONS.values()) == set(JobStatus)


def test_an_illegal_event_is_corrupt_and_names_job_state_and_type() -> None:
    late = entry(ev.JobProgress(progress=99), 8, 2)

    with pytest.raises(Corrupt, match=r"job.progress is not possible while completed"):
        fold(JOB, [*LIFE, late])


def test_an_event_of_a_newer_version_keeps_its_place_and_changes_nothing() -> None:
    state = fold(JOB, LIFE[:3])
    unknown = Entry("6000-0", "job.teleported", JOB, b"{}", sequence=4, fence=1)

    assert evolve(state, unknown) == dataclasses.replace(state, sequence=4, position="6000-0")


def test_the_fields_of_the_hash_are_short_and_each_has_one_meaning() -> None:
    names = {field.name for field in dataclasses.fields(JobState)}

    assert len(set(FIELDS.values())) == len(FIELDS)
    assert set(FIELDS) <= names
    assert all(len(short) <= 2 for short in FIELDS.values())


def test_a_new_run_begins_clean_and_keeps_counting() -> None:
    failed = fold(JOB, [LIFE[0], entry(ev.JobExpired(start_by_at_ms=2, waited_ms=1), 2)])
    again = evolve(failed, entry(ev.JobRetried(by="k", from_status="expired", run=2, max_attempts=3), 3))

    assert (again.status, again.run, again.done_ms, again.error_code) == (JobStatus.QUEUED, 2, None, None)

"""Reading one job by its back pointers, and a tenant's jobs page by page."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.errors import Corrupt
from contracts.job import JobState, JobStatus
from contracts.job_fold import evolve, fold
from contracts.store import keys
from contracts.store.write import JobGuard, Write
from contracts.wire import Entry
from tests.store.play import POOL, TENANT, Play


async def test_one_jobs_events_are_read_without_those_of_others(play: Play) -> None:
    attempt = await play.running()
    for progress in range(5):
        await asyncio.gather(*(play.job() for _ in range(3)))
        await play.store.attempts.emit(attempt, [ev.JobProgress(progress=progress)])

    history = await play.store.jobs.history(POOL, attempt.job_id)

    assert history is not None
    assert {entry.subject for entry in history.entries} == {attempt.job_id}
    assert [entry.sequence for entry in history.entries] == list(range(1, 9))
    assert history.folded() == history.state


async def test_any_prefix_folds_to_what_was_shown_then(play: Play) -> None:
    """Promise 6: folding the log gives the live state, at any past position."""
    job_id = await play.job()
    shown = [(await _state(play, job_id))]
    attempt, event = play.starting(await play.offers(job_id))
    shown.append(await _state(play, job_id))
    await play.store.attempts.start(attempt, event)
    shown.append(await _state(play, job_id))
    await play.store.attempts.emit(attempt, [ev.JobProgress(progress=33.333, step=1, phase="denoising")])
    shown.append(await _state(play, job_id))
    await play.completes(attempt)
    shown.append(await _state(play, job_id))

    history = await play.store.jobs.history(POOL, job_id)

    assert history is not None
    assert [fold(job_id, history.entries[:n]) for n in range(1, 6)] == shown
    assert shown[-1].status is JobStatus.COMPLETED


async def _state(play: Play, job_id: str):  # type: ignore[no-untyped-def]
    history = await play.store.jobs.history(POOL, job_id)
    assert history is not None
    return history.state


async def test_only_what_is_new_and_not_more_than_was_asked(play: Play) -> None:
    attempt = await play.running()
    for progress in range(10):
        await play.store.attempts.emit(attempt, [ev.JobProgress(progress=progress)])

    after = await play.store.jobs.history(POOL, attempt.job_id, after=11)
    few = await play.store.jobs.history(POOL, attempt.job_id, limit=2)

    assert after is not None
    assert few is not None
    assert [entry.sequence for entry in after.entries] == [12, 13]
    assert [entry.sequence for entry in few.entries] == [12, 13]


async def test_a_history_that_was_trimmed_says_so_and_the_state_is_still_there(play: Play) -> None:
    attempt = await play.running()
    await play.store.client.xtrim(keys.log(POOL), maxlen=1, approximate=False)

    history = await play.store.jobs.history(POOL, attempt.job_id)

    assert history is not None
    assert not history.complete
    assert history.state.status is JobStatus.IN_PROGRESS
    with pytest.raises(Corrupt, match="no longer in the log"):
        history.folded()


async def test_an_unknown_job_has_no_history(play: Play) -> None:
    assert await play.store.jobs.history(POOL, play.mints()) is None


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_show_every_job_once_newest_first(play: Play, limit: int) -> None:
    """Field case 146: a job is in the list exactly once, whether it waits, runs or has ended."""
    waiting = [await play.job() for _ in range(8)]
    ended = [await _cancelled(play) for _ in range(5)]
    waiting += [await play.job() for _ in range(3)]
    await play.job(tenant="t_b")

    found: list[str] = []
    while page := await play.store.jobs.page(POOL, TENANT, below=found[-1] if found else "", limit=limit):
        found += page

    assert found == sorted([*waiting, *ended], reverse=True)
    assert await play.store.jobs.page(POOL, TENANT, closed=False, limit=50) == sorted(waiting, reverse=True)
    assert await play.store.jobs.page(POOL, TENANT, opened=False, limit=50) == sorted(ended, reverse=True)


async def test_paging_misses_no_job_that_stays_while_others_end(play: Play) -> None:
    stay = [await play.job() for _ in range(10)]
    go = [await play.job() for _ in range(10)]

    found = await play.store.jobs.page(POOL, TENANT, limit=5)
    for job_id in go:
        await _cancel(play, job_id)
    while page := await play.store.jobs.page(POOL, TENANT, below=found[-1], limit=5):
        found += page

    assert set(stay) <= set(found)
    assert len(found) == len(set(found)) == 20


async def _cancelled(play: Play) -> str:
    job_id = await play.job()
    await _cancel(play, job_id)
    return job_id


async def _cancel(play: Play, job_id: str) -> None:
    write = Write(job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=1), closes_for=TENANT)
    await play.store.jobs.append(POOL, write, f"cancel {job_id[-8:]}")


@given(phase=st.text(max_size=20))
def test_a_phase_is_text_whatever_the_author_writes(phase: str) -> None:
    """A phase that looked like the sign for "now" once made every fold of its job fail."""
    event = ev.JobProgress(progress=1, phase=phase)
    running = JobState("job_x", 1, "1-0", JobStatus.IN_PROGRESS)

    state = evolve(running, Entry("2-0", "job.progress", "job_x", event.to_json().encode(), sequence=2))

    assert state.phase is None or state.phase in phase

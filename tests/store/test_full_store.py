"""A store at its memory limit refuses new work and lets everything that drains go on.

Field cases 29 and 125: when even completion needs memory that is not there, nothing can ever finish again.
"""

import pytest

from contracts import events as ev
from contracts.errors import StoreFull
from contracts.store import Word, keys, library
from contracts.store.jobs import Limits
from contracts.store.write import JobGuard, Write
from tests.store.play import LEASE_MS, POOL, TENANT, TOKEN, Play

# what brings something new in, and may be refused; everything else frees, ends or reports
REFUSED_WHEN_FULL = {
    "admit",
    "ask_task",
    "claim_task",
    "claim_key",
    "configure",
    "take_submit",
    "take_upload",
    "use_files",
    "note",
    "live",
}


async def flags(play: Play) -> dict[str, set[str]]:
    """Return verb -> flags as the server has them registered."""
    listed = await play.store.client.function_list(f"headrace_{library.source_hash()}")
    (found,) = (item for item in map(_fields, listed))
    functions = map(_fields, found["functions"])
    return {name(item["name"]): {name(flag) for flag in item["flags"]} for item in functions}


def _fields(raw: object) -> dict[str, object]:
    if isinstance(raw, dict):
        return {name(key): value for key, value in raw.items()}
    assert isinstance(raw, list)
    return dict(zip(map(name, raw[::2]), raw[1::2], strict=True))


def name(raw: object) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)


async def test_only_the_verbs_that_bring_in_something_new_may_be_refused(play: Play) -> None:
    registered = await flags(play)

    refusable = {verb for verb, found in registered.items() if not found & {"allow-oom", "no-writes"}}
    assert refusable == {library.function_name(verb) for verb in REFUSED_WHEN_FULL}


async def test_a_running_job_is_settled_and_the_next_one_started_on_a_full_store(play: Play) -> None:
    running = await play.running(slot=0)
    other = await play.running(slot=1)
    waiting, cancelled = await play.job(), await play.job()
    await play.store.client.config_set("maxmemory", 1)

    with pytest.raises(StoreFull):
        await play.admits()

    offer, write = play.offering(waiting, slot=0)
    assert [verdict.word for verdict in (await play.decides(write)).verdicts] == [Word.APPLIED]
    attempt, event = play.starting(offer)
    released, started = await play.store.attempts.release_and_start(
        running, ev.JobDeviceReleased(gpu_ms=1), attempt, event
    )
    assert (released.word, started.word) == (Word.APPLIED, Word.APPLIED)
    progress = await play.store.attempts.emit(attempt, [ev.JobProgress(progress=1)])
    assert progress.word is Word.APPLIED
    beat = await play.store.attempts.heartbeat(POOL, play.worker, [(attempt.job_id, attempt.fence)])
    assert beat.held == ("1",)
    done = await play.store.attempts.emit(running, [ev.JobCompleted()], closes=True, line=b'\n{"result":{}}')
    assert done.word is Word.APPLIED
    back = await play.store.attempts.emit(other, [ev.JobQueued(reason="handed_back", attempt=0)])
    assert back.word is Word.APPLIED
    end = Write(cancelled, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=1), closes_for=TENANT)
    assert (await play.store.jobs.append(POOL, end, "w")).word is Word.APPLIED
    forget = Write(cancelled, (), guard=JobGuard(states=("cancelled",)), forget=(TENANT, 60))
    assert [verdict.word for verdict in (await play.decides(forget)).verdicts] == [Word.APPLIED]


async def test_leaders_and_workers_come_and_go_on_a_full_store(play: Play) -> None:
    offer = await play.offers(await play.job())
    await play.store.client.config_set("maxmemory", 1)

    assert await play.registers()
    draining = ev.WorkerDraining(worker_id=play.worker)
    assert (await play.store.attempts.announce(POOL, play.worker, draining, "w", "draining")).word is Word.APPLIED
    assert (await play.store.attempts.decline(POOL, play.worker, offer, "drain")).word is Word.APPLIED
    drained = ev.WorkerDrained(worker_id=play.worker)
    assert (await play.store.attempts.announce(POOL, play.worker, drained, "x", "gone")).word is Word.APPLIED
    assert (await play.store.leadership.resign(POOL, TOKEN)).word is Word.APPLIED
    assert (await play.store.leadership.lead(POOL, "next", LEASE_MS))[0]
    assert (await play.store.jobs.refuse(POOL, play.mints(), 60)).word is Word.APPLIED


async def test_a_refused_admission_leaves_no_half_job(play: Play) -> None:
    before = await play.log_length()
    await play.store.client.config_set("maxmemory", 1)
    job_id = play.mints()

    with pytest.raises(StoreFull):
        await play.store.jobs.admit(POOL, play.created(job_id), b"{}", TENANT, Limits())

    await play.store.client.config_set("maxmemory", 0)
    assert await play.log_length() == before
    assert [key async for key in play.store.client.scan_iter(f"*{job_id}*")] == []
    assert await play.store.client.exists(keys.usage(POOL)) == 0
    admitted = await play.store.jobs.admit(POOL, play.created(job_id), b"{}", TENANT, Limits())
    assert (admitted.word, admitted.state) == (Word.APPLIED, "")

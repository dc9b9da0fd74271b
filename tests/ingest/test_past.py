"""The past: what is folded from the log up to an instant is what was shown then."""

import random
from collections import Counter
from typing import Any

from contracts import events as ev
from contracts.positions import parse_position
from contracts.store import Word
from contracts.store.write import JobGuard, Write
from tests.archive.rig import Log
from tests.ingest.api import Api
from tests.ingest.test_events import log, run_job, seal_and_trim
from tests.ingest.test_read import VOLATILE
from tests.store.play import Play

__all__ = ["log"]


async def shown(api: Api, path: str) -> dict[str, Any]:
    """Return a job without what only the present can say."""
    answer = await api.get(path)
    assert answer.status == 200, answer.body
    return {name: value for name, value in answer.body.items() if name not in VOLATILE}


async def test_the_fold_up_to_any_position_is_what_was_recorded_live_then(api: Api, play: Play, log: Log) -> None:
    """A run with attempts that are lost, cancels while waiting and running, late writes; chosen by chance."""
    chance = random.Random(7)
    live: list[tuple[str, str, dict[str, Any], Counter[str]]] = []

    async def record(job_id: str) -> None:
        job = await shown(api, f"/v1/jobs/{job_id}")
        end = f"aa.1.{await api.store.end_of_log('default')}"
        counts = Counter(each["status"] for each in (await api.get("/v1/jobs?pool=default&limit=100")).body["data"])
        live.append((job_id, end, job, counts))

    for _ in range(14):
        job_id = await api.job()
        await record(job_id)
        if chance.random() < 0.3:
            await api.call("POST", f"/v1/jobs/{job_id}/cancel")
            await record(job_id)
            continue
        attempt, started = play.starting(await play.offers(job_id))
        await api.store.attempts.start(attempt, started)
        await record(job_id)
        await api.store.attempts.emit(attempt, [ev.JobProgress(progress=chance.randint(1, 99))])
        await record(job_id)
        if chance.random() < 0.4:
            await api.call("POST", f"/v1/jobs/{job_id}/cancel")
            await record(job_id)
            await api.store.attempts.emit(attempt, [ev.JobCancelled(how="cooperative")], closes=True)
        elif chance.random() < 0.5:
            await _dies(api, job_id)
            await record(job_id)
            late = await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
            assert late.word is not Word.APPLIED
        else:
            await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
        await record(job_id)

    await seal_and_trim(log, 60)
    for job_id, end, job, counts in chance.sample(live, 30):
        assert await shown(api, f"/v1/jobs/{job_id}?at={end}") == job
        assert await shown(api, f"/v1/jobs/{job_id}?at={job['position']}") == job
        state = (await api.get(f"/v1/state?at={end}&scope=pool:default")).body
        assert {status: count for status, count in state["counts"].items() if count} == counts


async def _dies(api: Api, job_id: str) -> None:
    """The worker of a running job is lost, and it waits for another attempt."""
    history = await api.store.jobs.history("default", job_id)
    assert history is not None
    state = history.state
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    lost = ev.JobLeaseLost(worker_id=state.worker_id or "", attempt=state.attempt)
    failed = ev.JobAttemptFailed(error=error, attempt=state.attempt, will_retry=True)
    write = Write(job_id, (lost, failed), guard=JobGuard(states=("in_progress",), fence=state.fence))
    assert (await api.store.jobs.append("default", write, f"dies {job_id}")).applied


async def test_an_instant_is_included_and_the_answer_names_it(api: Api, play: Play) -> None:
    job_id = await run_job(api, play)
    events = (await api.get(f"/v1/jobs/{job_id}/events")).body["data"]

    for event in events:
        job = await shown(api, f"/v1/jobs/{job_id}?at={event['position']}")
        assert (job["position"], job["sequence"]) == (event["position"], event["sequence"])
    last = [each for each in events if each["time"] <= events[1]["time"]][-1]
    assert (await shown(api, f"/v1/jobs/{job_id}?at={events[1]['time']}"))["position"] == last["position"]
    state = (await api.get(f"/v1/state?at={events[2]['position']}")).body
    assert state["positions"] == {"default": events[2]["position"]}
    assert [each["jobId"] for each in state["running"]] == [job_id]
    assert (await api.get("/v1/state")).body["counts"]["completed"] == 1


async def test_there_is_no_past_before_a_job_nor_for_strangers(api: Api, play: Play) -> None:
    job_id = await run_job(api, play)
    stranger = await api.tenant("t_b")
    position = (await api.get(f"/v1/jobs/{job_id}")).body["position"]

    early = await api.get(f"/v1/jobs/{job_id}?at=2020-01-01T00:00:00Z")
    foreign = await api.get(f"/v1/jobs/{job_id}?at={position}", key=stranger)
    assert {early.code, foreign.code} == {"job_not_found"}
    theirs = (await api.get(f"/v1/state?at={position}", key=stranger)).body
    assert (sum(theirs["counts"].values()), theirs["running"]) == (0, [])
    for query in ("at=soon", f"at=ab.1.{parse_position(position).entry}", f"at={position}&sequence=1"):
        assert (await api.get(f"/v1/jobs/{job_id}?{query}")).code == "bad_parameter"
    assert (await api.get("/v1/state?scope=pool:none")).code == "pool_not_found"
    assert (await api.get("/v1/state?scope=all")).code == "bad_parameter"

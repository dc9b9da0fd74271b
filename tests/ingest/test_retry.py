"""A new run of a job that ended: counted, offered and finished like the first, and refused where it makes no sense."""

import asyncio

from contracts import events as ev
from contracts.store import keys
from tests.ingest.api import Api
from tests.ingest.test_events import pages, run_job
from tests.store.play import Play


async def retry(api: Api, job_id: str, key: str | None = None) -> tuple[int, str | None]:
    answer = await api.call("POST", f"/v1/jobs/{job_id}/retry", key=key)
    return answer.status, answer.code


async def test_a_cancelled_job_runs_again_to_its_end(api: Api, play: Play) -> None:
    job_id = await api.job()
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")

    answers = await asyncio.gather(*(retry(api, job_id) for _ in range(3)))
    queued = (await api.get("/v1/limits")).body["use"]["default"]["queuedJobs"]
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)

    assert sorted(status for status, _ in answers) == [202, 409, 409]
    assert queued == 1
    job = (await api.get(f"/v1/jobs/{job_id}")).body
    assert (job["status"], job["cancelRequestedAt"]) == ("completed", None)
    types = [each["type"] for each in await pages(api, f"/v1/jobs/{job_id}/events", limit=100)]
    assert types == ["job.created", "job.cancelled", "job.retried", "job.assigned", "job.started", "job.completed"]
    assert (await api.get("/v1/limits")).body["use"]["default"]["queuedJobs"] == 0
    assert (await api.get("/v1/state")).body["counts"]["completed"] == 1


async def test_what_runs_or_has_ended_well_is_not_run_again(api: Api, play: Play) -> None:
    done, waiting = await run_job(api, play), await api.job()

    for job_id in (done, waiting):
        assert await retry(api, job_id) == (409, "not_retryable")


async def test_a_forgotten_job_is_gone_for_its_tenant_and_unknown_to_others(api: Api) -> None:
    job_id = await api.job()
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    stranger = await api.tenant("t_b")

    assert await retry(api, job_id, key=stranger) == (404, "job_not_found")
    await api.store.client.delete(keys.job("default", job_id), keys.body("default", job_id))
    assert await retry(api, job_id) == (410, "data_erased")
    assert await retry(api, job_id, key=stranger) == (404, "job_not_found")
    assert await retry(api, "job_x") == (404, "job_not_found")


async def test_a_retry_is_held_to_the_limits_of_a_new_job(api: Api) -> None:
    key = await api.tenant("t_b", submitsPerMinute=2, queuedJobs=1)
    ended = str((await api.submit(key=key)).body["id"])
    await api.call("POST", f"/v1/jobs/{ended}/cancel", key=key)
    await api.submit(key=key)
    before = (await api.get(f"/v1/jobs/{ended}", key=key)).body

    full = await api.call("POST", f"/v1/jobs/{ended}/retry", key=key)
    await api.admin(
        "PATCH", "/admin/v1/tenants/t_b", json={"limits": {"submitsPerMinute": 2, "queuedJobs": 9, "queuedBytes": 250}}
    )
    large = await api.call("POST", f"/v1/jobs/{ended}/retry", key=key)
    fast = await api.call("POST", f"/v1/jobs/{ended}/retry", key=key)

    assert (full.status, full.code, full.body["violated-policies"]) == (429, "quota_exceeded", ["queuedJobs"])
    assert (large.status, large.code, large.body["violated-policies"]) == (429, "quota_exceeded", ["queuedBytes"])
    assert (fast.status, fast.code) == (429, "rate_limited")
    assert int(fast.headers["retry-after"]) > 0
    assert (await api.get(f"/v1/jobs/{ended}", key=key)).body == before  # nothing was written


async def test_a_retry_of_a_paused_tenant_waits_like_a_new_job(api: Api) -> None:
    job_id = await api.job()
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    await api.admin("POST", "/admin/v1/tenants/t_a/pause", json={"reason": "late"})

    assert await retry(api, job_id) == (202, None)
    assert (await api.get(f"/v1/jobs/{job_id}")).body["status"] == "queued"

"""Idempotency-Key: a repeat finds the job and never makes a second one."""

import asyncio

import pytest

from contracts import events as ev
from contracts.store import Word
from contracts.store.write import JobGuard, Write
from tests.ingest.api import JOB, Api, log_length
from tests.ingest.conftest import raw_connection
from tests.store.play import Play

KEY = {"Idempotency-Key": '"order-17"'}


async def test_a_repeat_while_the_job_waits_gives_the_same_job(api: Api) -> None:
    """Field case 9 (1): same key, same body, while queued."""
    first = await api.submit(headers=KEY)
    again = await api.submit(headers=KEY)

    assert (first.status, again.status) == (201, 200)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.body == first.body
    assert await log_length(api) == 1


async def test_the_same_request_in_other_words_is_a_repeat(api: Api) -> None:
    first = await api.submit(headers=KEY, metadata={"a": "1", "b": "2"})
    fields = {"metadata": {"b": "2", "a": "1"}, "model": "draw", "prompt": "an onion", "user_id": "u_42"}

    again = await api.call("POST", "/v1/jobs", json=fields, headers={"Idempotency-Key": "order-17"})

    assert (again.status, again.body["id"]) == (200, first.body["id"])


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_a_repeat_after_the_end_shows_how_it_ended(api: Api, play: Play, outcome: str) -> None:
    """Field case 9 (2, 3): after success and after failure."""
    first = await api.submit(headers=KEY)
    attempt, started = play.starting(await play.offers(first.body["id"]))
    await api.store.attempts.start(attempt, started)
    error = ev.ErrorFacts(code="internal")
    ends: dict[str, list[ev.Event]] = {
        "completed": [ev.JobCompleted()],
        "failed": [
            ev.JobAttemptFailed(error=error, attempt=1, will_retry=False),
            ev.JobFailed(error=error, attempts=1),
        ],
    }
    await api.store.attempts.emit(attempt, ends[outcome], closes=True)

    again = await api.submit(headers=KEY)

    assert (again.status, again.body["id"], again.body["status"]) == (200, first.body["id"], outcome)


async def test_another_body_or_pool_under_the_same_key_is_422(api: Api) -> None:
    """Field case 9 (4)."""
    await api.submit(headers=KEY)

    for fields in ({"prompt": "a leek"}, {"pool": "large"}):
        refused = await api.submit(headers=KEY, **fields)
        assert (refused.status, refused.code) == (422, "idempotency_mismatch")
    assert await log_length(api) == 1


async def test_a_repeat_after_retention_names_the_job_and_makes_no_other(api: Api, play: Play) -> None:
    """Field case 9 (5): the key outlives the job."""
    first = await api.submit(headers=KEY)
    job_id = first.body["id"]
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    assert (await api.submit(headers=KEY)).body["status"] == "cancelled"
    forgotten = Write(job_id, (), guard=JobGuard(states=("cancelled",)), forget=("t_a", 86_400))
    assert (await play.decides(forgotten)).verdicts[0].word is Word.APPLIED

    again = await api.submit(headers=KEY)
    waited = await api.submit(headers=KEY | {"Prefer": "wait=1"})

    assert (again.status, again.body["id"], again.body["status"]) == (200, job_id, "cancelled")
    assert waited.body == again.body
    assert (await api.get(f"/v1/jobs/{job_id}")).status == 404
    assert await api.store.jobs.page("default", "t_a") == []


async def test_after_its_time_to_live_a_key_is_new(api: Api) -> None:
    """Field case 9 (6)."""
    first = await api.submit(headers=KEY)
    (claim,) = await api.store.client.keys("hr:{idem:*")
    assert 86_300 < await api.store.client.ttl(claim) <= 86_400
    await api.store.client.expire(claim, 0)

    second = await api.submit(headers=KEY)

    assert second.status == 201
    assert second.body["id"] != first.body["id"]


async def test_two_tenants_with_one_key_have_two_jobs(api: Api) -> None:
    """Field case 10: the scope of a key is the tenant."""
    other = await api.tenant("t_b")

    mine, theirs = await api.submit(headers=KEY), await api.submit(other, headers=KEY)

    assert (mine.status, theirs.status) == (201, 201)
    assert mine.body["id"] != theirs.body["id"]
    assert (await api.submit(headers=KEY)).body["id"] == mine.body["id"]


async def test_a_hundred_repeats_at_once_make_one_job(api: Api) -> None:
    answers = await asyncio.gather(*(api.submit(headers=KEY) for _ in range(100)))

    assert len({answer.body["id"] for answer in answers}) == 1
    assert sorted(answer.status for answer in answers).count(201) >= 1
    assert {answer.status for answer in answers} <= {200, 201}
    assert await log_length(api) == 1


async def test_an_answer_that_is_lost_is_found_again_with_the_key(api: Api) -> None:
    """Field case 3: the connection is cut before the answer; key and client reference both lead to the job."""
    async with raw_connection(api.service.port) as raw:
        body = b'{"userId":"u_42","prompt":"an onion","model":"draw","metadata":{"ref":"17"}}'
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {api.key}\r\nIdempotency-Key: order-17\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await raw.send(head.encode() + body)
        raw.writer.transport.abort()
    assert await api.store.tail("default", "0-0").read(block_ms=5_000)

    again = await api.submit(headers=KEY, metadata={"ref": "17"})

    assert again.status == 200
    listed = await api.get("/v1/jobs?metadata.ref=17")
    assert [job["id"] for job in listed.body["data"]] == [again.body["id"]]
    assert await log_length(api) == 1


async def test_a_refused_submission_frees_its_key_for_any_request(api: Api) -> None:
    key = await api.tenant("t_one", queuedJobs=1)
    blocking = await api.submit(key)
    assert (await api.submit(key, headers=KEY)).status == 429
    assert await api.store.client.keys("hr:{idem:*") == []
    await api.call("POST", f"/v1/jobs/{blocking.body['id']}/cancel", key=key)

    made = await api.submit(key, headers=KEY, prompt="a leek")

    assert made.status == 201


async def test_a_full_store_refuses_what_is_new_and_still_answers_repeats(api: Api) -> None:
    first = await api.submit(headers=KEY)
    await api.service.context.readiness.run_once(api.service._probe)
    api.service.context.readiness.memory_ratio_limit = -1.0

    new, keyed = await api.submit(), await api.submit(headers={"Idempotency-Key": "order-18"})
    again = await api.submit(headers=KEY)

    assert [(answer.status, answer.code) for answer in (new, keyed)] == [(503, "storage_full")] * 2
    assert (again.status, again.body["id"]) == (200, first.body["id"])
    assert len(await api.store.client.keys("hr:{idem:*")) == 1
    assert await log_length(api) == 1


async def test_a_claim_whose_id_was_refused_is_made_anew(api: Api) -> None:
    """Whoever was refused died between marking the id and dropping the claim."""
    first = await api.submit(headers=KEY)
    (claim,) = await api.store.client.keys("hr:{idem:*")
    refused_id = first.body["id"][:-3] + ("x" if first.body["id"][-3] != "x" else "y") + "aa"
    await api.store.client.hset(claim, mapping={"state": "pending", "id": refused_id})
    assert (await api.store.jobs.refuse("default", refused_id, 60)).word is Word.APPLIED

    again = await api.submit(headers=KEY)

    assert again.status == 201
    assert again.body["id"] != refused_id


async def test_a_claim_without_a_job_is_taken_up_by_the_repeat(api: Api) -> None:
    """Whoever claimed died before it admitted: the repeat admits under the same id."""
    first = await api.submit(headers=KEY)
    job_id = first.body["id"]
    claim = (await api.store.client.keys("hr:{idem:*"))[0]
    await api.store.client.hset(claim, "state", "pending")

    again = await api.submit(headers=KEY)

    assert (again.status, again.body["id"]) == (200, job_id)
    assert await api.store.client.hget(claim, "state") == b"queued"


@pytest.mark.parametrize("header", ["", '""', "x" * 256, "tab\there"])
async def test_a_malformed_key_is_400(api: Api, header: str) -> None:
    refused = await api.call("POST", "/v1/jobs", json=JOB, headers={"Idempotency-Key": header})

    assert (refused.status, refused.code) == (400, "missing_idempotency_key")
    assert await log_length(api) == 0

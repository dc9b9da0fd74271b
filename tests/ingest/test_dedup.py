"""`dedup`: one job at a time under a key of the tenant, whoever submits it, and never a second one unseen."""

import asyncio
from typing import Any

import pytest

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.store import Word, keys
from contracts.store.write import JobGuard, Write
from tests.ingest.api import JOB, Answer, Api, log_length
from tests.store.play import Play

DEDUP: dict[str, object] = {"key": "u_42:onion"}
FOR_A_TIME: dict[str, object] = {"key": "u_42:onion", "mode": "ttl", "ttlSeconds": 60}
KEY = {"Idempotency-Key": '"order-17"'}


async def submit(api: Api, dedup: dict[str, object] | None = None, key: str | None = None, **more: Any) -> Answer:
    return await api.submit(key, dedup=DEDUP if dedup is None else dedup, **more)


def told(answer: Answer) -> tuple[int, str | None, str | None]:
    return answer.status, answer.headers.get("deduplicated"), answer.headers.get("idempotent-replayed")


async def cancel(api: Api, job_id: str) -> None:
    assert (await api.call("POST", f"/v1/jobs/{job_id}/cancel")).status == 200


async def held(api: Api) -> list[bytes]:
    return sorted(await api.store.client.keys("hr:*:dedup:*"))


async def test_while_a_job_is_in_flight_the_same_key_finds_it_whatever_else_is_asked(api: Api, play: Play) -> None:
    first = await submit(api)

    again = await submit(api, prompt="a leek", model="echo")
    attempt, started = play.starting(await play.offers(first.body["id"]))
    await api.store.attempts.start(attempt, started)
    running = await submit(api)

    assert (told(first), told(again)) == ((201, None, None), (200, "true", None))
    assert (again.body["id"], again.body["prompt"]) == (first.body["id"], "an onion")
    assert (running.body["id"], running.body["status"]) == (first.body["id"], "in_progress")
    assert await play.types(first.body["id"]) == ["job.created", "job.assigned", "job.started"]


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "expired"])
async def test_a_job_that_has_ended_holds_its_key_no_longer(api: Api, play: Play, end: str) -> None:
    job_id = (await submit(api)).body["id"]
    if end in ("completed", "failed"):
        attempt, started = play.starting(await play.offers(job_id))
        await api.store.attempts.start(attempt, started)
        error = ev.ErrorFacts(code="internal")
        failed = [ev.JobAttemptFailed(error=error, attempt=1, will_retry=False), ev.JobFailed(error=error, attempts=1)]
        events: list[ev.Event] = [ev.JobCompleted()] if end == "completed" else [*failed]
        assert (await api.store.attempts.emit(attempt, events, closes=True)).word is Word.APPLIED
    elif end == "expired":
        expired = Write(job_id, (ev.JobExpired(start_by_at_ms=1, waited_ms=1),), closes_for="t_a")
        assert (await play.decides(expired)).verdicts[0].applied
    else:
        await cancel(api, job_id)

    assert await held(api) == []
    second = await submit(api)
    assert told(second) == (201, None, None)
    assert (await submit(api)).body["id"] == second.body["id"]


async def test_for_a_time_the_key_is_held_however_the_job_ends(api: Api, play: Play) -> None:
    first = await submit(api, FOR_A_TIME)
    job_id = first.body["id"]
    await cancel(api, job_id)

    again = await submit(api, FOR_A_TIME)
    other_mode = await submit(api, DEDUP)
    (key,) = await held(api)

    assert (told(again), again.body["status"], again.body["id"]) == ((200, "true", None), "cancelled", job_id)
    assert other_mode.body["id"] == job_id
    assert 50_000 < await api.store.client.pttl(key) <= 60_000

    forgotten = Write(job_id, (), guard=JobGuard(states=("cancelled",)), forget=("t_a", 86_400))
    assert (await play.decides(forgotten)).verdicts[0].word is Word.APPLIED
    gone = await submit(api, FOR_A_TIME)
    assert (told(gone), gone.body) == (
        (200, "true", None), {"id": job_id, "object": "job", "status": None, "expired": True},
    )  # fmt: skip
    await api.store.client.pexpire(key, 0)
    assert told(await submit(api, FOR_A_TIME)) == (201, None, None)


async def test_the_first_job_decides_how_long_the_key_is_held(api: Api) -> None:
    first = await submit(api, DEDUP)

    assert (await submit(api, FOR_A_TIME)).body["id"] == first.body["id"]
    await cancel(api, first.body["id"])
    assert told(await submit(api, FOR_A_TIME)) == (201, None, None)


async def test_two_tenants_and_two_pools_do_not_share_a_key(api: Api) -> None:
    """Field case 10, for the other kind of key: not even by its status does one tenant see the other's."""
    other = await api.tenant("t_b")

    made = [await submit(api), await submit(api, key=other), await submit(api, pool="large")]

    assert [told(answer) for answer in made] == [(201, None, None)] * 3
    assert len({answer.body["id"] for answer in made}) == 3


async def test_a_hundred_at_once_make_one_job(api: Api) -> None:
    keyed = [{"Idempotency-Key": f"k{n}"} if n % 2 else {} for n in range(100)]

    answers = await asyncio.gather(*(submit(api, headers=headers) for headers in keyed))

    assert len({answer.body["id"] for answer in answers}) == 1
    assert sorted(answer.status for answer in answers) == [200] * 99 + [201]
    assert await log_length(api) == 1


async def test_an_idempotency_key_keeps_the_job_that_was_found_also_when_that_has_ended(api: Api) -> None:
    """A repeat must never make the job that its first try was told not to make."""
    first = await submit(api)

    found = await submit(api, headers=KEY)
    await cancel(api, first.body["id"])
    repeated = await submit(api, headers=KEY)
    fresh = await submit(api)

    assert told(found) == (200, "true", None)
    assert (told(repeated), repeated.body["id"]) == ((200, None, "true"), first.body["id"])
    assert repeated.body["status"] == "cancelled"
    assert (told(fresh), fresh.body["id"] != first.body["id"]) == ((201, None, None), True)
    other = await submit(api, headers=KEY, prompt="a leek")
    assert (other.status, other.code) == (422, "idempotency_mismatch")


async def test_a_crash_between_the_two_steps_of_a_key_is_mended_by_the_repeat(api: Api) -> None:
    """The process dies when the store has answered and the claim is not marked: the claim stays pending."""
    first = await submit(api)
    done = api.store.claims.done

    async def dies(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("killed")

    api.store.claims.done = dies  # type: ignore[method-assign]
    assert told(await submit(api, headers=KEY)) == (200, "true", None)
    api.store.claims.done = done  # type: ignore[method-assign]
    await cancel(api, first.body["id"])

    again = await submit(api, headers=KEY)

    assert (again.status, again.body["id"], again.body["status"]) == (200, first.body["id"], "cancelled")
    assert await log_length(api) == 2


async def test_what_is_refused_holds_no_key(api: Api) -> None:
    key = await api.tenant("t_one", queuedJobs=1)
    blocking = (await api.submit(key)).body["id"]

    assert (await submit(api, key=key)).status == 429
    assert await held(api) == []
    await api.call("POST", f"/v1/jobs/{blocking}/cancel", key=key)
    made = await submit(api, key=key)
    assert told(made) == (201, None, None)
    # a tenant that is full still hears of the job it has
    assert (await submit(api, key=key)).body["id"] == made.body["id"]


async def test_a_caller_who_waits_waits_for_the_job_that_is_found(api: Api) -> None:
    first = await submit(api)
    waiting = asyncio.create_task(submit(api, headers={"Prefer": "wait=20"}))
    while not api.service._watch.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    await cancel(api, first.body["id"])

    answer = await waiting
    assert (told(answer), answer.body["status"]) == ((200, "true", None), "cancelled")
    assert answer.body["id"] == first.body["id"]


async def test_items_of_one_batch_with_one_key_are_one_job(api: Api) -> None:
    batch = {"jobs": [JOB | {"dedup": DEDUP}, JOB, JOB | {"dedup": DEDUP}]}

    items = (await api.call("POST", "/v1/jobs/batch", json=batch)).body["data"]

    assert [(item["status"], item["deduplicated"]) for item in items] == [(201, False), (201, False), (200, True)]
    assert items[0]["job"]["id"] == items[2]["job"]["id"]


async def test_the_words_of_a_key_are_nowhere_in_the_store(api: Api) -> None:
    """Field case 7: a key of the store never holds a user's text; the log holds a digest under a secret."""
    dedup = {"key": "anna:{*}:onion"}
    await submit(api, dedup)
    await submit(api, dedup | {"mode": "ttl"}, key=await api.tenant("t_b"))

    for name in await api.store.client.keys("*"):
        assert b"anna" not in name
    entries = await api.store.tail("default", "0-0").read()
    assert not any("anna" in str(entry) for entry in entries)
    shared = await api.store.client.hgetall(keys.dedup_in_flight("default", "t_a"))
    assert len(shared) == 1


@pytest.mark.parametrize(
    ("dedup", "pointer"),
    [
        ({}, "/dedup/key"),
        ({"key": ""}, "/dedup/key"),
        ({"key": "a\nb"}, "/dedup/key"),
        ({"key": "x" * 257}, "/dedup/key"),
        ({"key": "a", "mode": "forever"}, "/dedup/mode"),
        ({"key": "a", "mode": "ttl", "ttlSeconds": 0}, "/dedup/ttlSeconds"),
        ({"key": "a", "mode": "ttl", "ttlSeconds": 10**9}, "/dedup/ttlSeconds"),
        ({"key": "a", "ttl": 5}, "/dedup/ttl"),
    ],
)
async def test_a_malformed_dedup_is_422(api: Api, dedup: dict[str, object], pointer: str) -> None:
    refused = await submit(api, dedup)

    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_a_job_may_refuse_to_wait_behind_too_many(api: Api) -> None:
    """`policy.maxQueueLength`: the tenant's open jobs in the pool, this one included."""
    await api.submit()
    policy = {"policy": {"maxQueueLength": 2}}

    assert (await api.submit(**policy)).status == 201
    refused = await api.submit(**policy, headers=KEY)

    assert (refused.status, refused.code) == (429, "quota_exceeded")
    assert refused.body["violated-policies"] == ["maxQueueLength"]
    assert "retry-after" in refused.headers
    assert await log_length(api) == 2
    assert (await api.submit(policy={"maxQueueLength": 3}, headers=KEY)).status == 201
    assert (await api.submit(policy={"maxQueueLength": 1}, pool="large")).status == 201


async def test_the_tenants_own_limit_is_named_where_it_is_the_tighter_one(api: Api) -> None:
    key = await api.tenant("t_one", queuedJobs=1)
    await api.submit(key)

    refused = await api.submit(key, policy={"maxQueueLength": 5})

    assert refused.body["violated-policies"] == ["queuedJobs"]


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        *(({"maxAttempts": n}, "/policy/maxAttempts") for n in (0, -1, 10**9, "3", 1.5, True)),
        *(({"maxQueueLength": n}, "/policy/maxQueueLength") for n in (0, -1, 10**9, "3")),
        *(({"startBySeconds": n}, "/policy/startBySeconds") for n in (0, -1, 10**9)),
        *(({"executionTimeoutSeconds": n}, "/policy/executionTimeoutSeconds") for n in (0, -1, 10**9)),
        ({"attempts": 3}, "/policy/attempts"),
    ],
)
async def test_a_policy_out_of_range_is_422_with_its_field(api: Api, policy: dict[str, object], pointer: str) -> None:
    """Field case 33: attempts of 0, -1 or a thousand million, and what contradicts itself, never become a job."""
    refused = await api.submit(policy=policy)

    assert (refused.status, refused.pointers) == (422, [pointer])
    assert await log_length(api) == 0

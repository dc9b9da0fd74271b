"""POST /v1/jobs/batch: each item for itself, all in one request."""

import asyncio
from typing import Any

import pytest

from contracts.errors import Unconfirmed
from services.ingest.handlers.batch import ALL_AT_ONCE
from services.ingest.views.schemas import ProblemDocument
from tests.ingest.api import JOB, Answer, Api, log_length

KEY = {"Idempotency-Key": '"import-17"'}


async def send(api: Api, *items: Any, key: str | None = None, headers: dict[str, str] | None = None) -> Answer:
    return await api.call("POST", "/v1/jobs/batch", key=key, json={"jobs": list(items)}, headers=headers)


def item(**fields: object) -> dict[str, object]:
    return JOB | fields


def statuses(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    assert [each["index"] for each in answer.body["data"]] == list(range(len(answer.body["data"])))
    return [each["status"] for each in answer.body["data"]]


def ids(answer: Answer) -> list[str]:
    return [each["job"]["id"] for each in answer.body["data"]]


async def test_a_hundred_jobs_are_durable_in_their_order_and_shown_as_they_will_be_read(api: Api) -> None:
    """Field case 20: submitted in this order, they stand in this order."""
    answer = await send(api, *(item(prompt=f"onion {n}", metadata={"n": str(n)}) for n in range(100)))

    assert statuses(answer) == [201] * 100
    entries = await api.store.tail("default", "0-0").read(count=200)
    assert [entry.subject for entry in entries] == ids(answer)  # type: ignore[union-attr]
    assert (await api.get(f"/v1/jobs/{ids(answer)[42]}")).body == answer.body["data"][42]["job"]
    assert answer.body["data"][42]["job"]["metadata"] == {"n": "42"}


async def test_a_wrong_item_refuses_itself_only_and_says_where(api: Api) -> None:
    """Field case 7: what can never run is refused at POST, with its place in what was sent."""
    answer = await send(
        api, item(), item(model="none"), item(input={"steps": 0}), 5, item(priority=1), item(typo=1), {}, item(),
        item(webhookUrl="http://10.0.0.1/"),
    )  # fmt: skip

    assert statuses(answer) == [201, 422, 422, 422, 422, 422, 422, 201, 422]
    problems = [each["problem"] for each in answer.body["data"] if each["problem"]]
    for problem in problems:
        assert ProblemDocument.model_validate(problem).instance == "/v1/jobs/batch"
    assert [problem["errors"][0]["pointer"] for problem in problems] == [
        "/jobs/1/model", "/jobs/2/input/steps", "/jobs/3", "/jobs/4/priority", "/jobs/5/typo", "/jobs/6/userId",
        "/jobs/8/webhookUrl",
    ]  # fmt: skip
    assert problems[4]["code"] == "unknown_field"
    assert await log_length(api) == 2


@pytest.mark.parametrize("body", [{}, {"jobs": []}, {"jobs": {}}, {"jobs": [JOB], "x": 1}, {"jobs": [JOB] * 101}])
async def test_a_batch_that_is_none_is_refused_as_a_whole(api: Api, body: dict[str, object]) -> None:
    refused = await api.call("POST", "/v1/jobs/batch", json=body)

    assert refused.status == 422
    assert await log_length(api) == 0


async def test_the_whole_body_has_one_limit(api: Api) -> None:
    """Field cases 1 and 11."""
    refused = await send(api, *(item(prompt="x" * 20_000) for _ in range(60)))

    assert (refused.status, refused.code) == (413, "payload_too_large")
    assert await log_length(api) == 0


async def test_a_limit_holds_for_each_item(api: Api) -> None:
    """Field case 5: exactly the limit is admitted, the rest is told to wait, nothing is written for it."""
    key = await api.tenant("t_three", queuedJobs=3)

    answer = await send(api, *(item() for _ in range(5)), key=key)

    assert statuses(answer) == [201, 201, 201, 429, 429]
    refused = answer.body["data"][4]["problem"]
    assert (refused["code"], refused["violated-policies"]) == ("quota_exceeded", ["queuedJobs"])
    assert refused["retryAfterSeconds"] >= 1
    assert await log_length(api) == 3


async def test_a_repeat_finds_every_job_and_makes_none(api: Api) -> None:
    """Field case 9, for a batch."""
    items = [item(prompt=f"onion {n}") for n in range(5)]
    first = await send(api, *items, headers=KEY)
    await api.call("POST", f"/v1/jobs/{ids(first)[1]}/cancel")

    again = await send(api, *items, headers=KEY)

    assert (statuses(first), statuses(again)) == ([201] * 5, [200] * 5)
    assert ids(again) == ids(first)
    assert all(each["idempotentReplayed"] for each in again.body["data"])
    assert again.body["data"][1]["job"]["status"] == "cancelled"
    assert await log_length(api) == 6


async def test_a_repeat_makes_what_was_refused_before_and_refuses_another_body(api: Api) -> None:
    key = await api.tenant("t_two", queuedJobs=2)
    items = [item(prompt=f"onion {n}") for n in range(3)]
    first = await send(api, *items, key=key, headers=KEY)
    assert statuses(first) == [201, 201, 429]
    await api.call("POST", f"/v1/jobs/{first.body['data'][0]['job']['id']}/cancel", key=key)

    again = await send(api, items[0], item(prompt="a leek"), items[2], key=key, headers=KEY)

    assert statuses(again) == [200, 422, 201]
    assert again.body["data"][1]["problem"]["code"] == "idempotency_mismatch"


async def test_ten_batches_with_one_key_at_once_make_its_jobs_once(api: Api) -> None:
    items = [item(prompt=f"onion {n}") for n in range(10)]

    answers = await asyncio.gather(*(send(api, *items, headers=KEY) for _ in range(10)))

    assert len({tuple(ids(answer)) for answer in answers}) == 1
    assert await log_length(api) == 10


async def test_a_key_of_a_batch_is_not_the_key_of_a_single_job(api: Api) -> None:
    single = await api.submit(headers=KEY)
    batch = await send(api, JOB, headers=KEY)

    assert (single.status, statuses(batch)) == (201, [201])
    assert ids(batch) != [single.body["id"]]


async def test_an_item_whose_answer_is_lost_is_unknown_and_the_repeat_finds_it(api: Api) -> None:
    admit, calls = api.store.jobs.admit, 0

    async def losing(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        mine = calls
        answer = await admit(*args, **more)
        if mine == 2:
            raise Unconfirmed("the answer was lost")
        return answer

    api.store.jobs.admit = losing  # type: ignore[method-assign]
    items = [item(prompt=f"onion {n}") for n in range(3)]
    first = await send(api, *items, headers=KEY)
    again = await send(api, *items, headers=KEY)

    assert (statuses(first), statuses(again)) == ([201, 503, 201], [200, 200, 200])
    assert first.body["data"][1]["problem"]["code"] == "unconfirmed"
    assert first.body["data"][1]["problem"]["retryable"]
    assert await log_length(api) == 3


async def test_the_items_of_a_batch_share_the_stores_pipelines(api: Api) -> None:
    """A hundred jobs cost a few round trips, not a hundred."""
    exchange, sizes = api.store.batcher._channel.exchange, []

    async def counting(commands: Any, timeout_s: float) -> Any:
        sizes.append(len(commands))
        return await exchange(commands, timeout_s)

    api.store.batcher._channel.exchange = counting  # type: ignore[method-assign]
    assert statuses(await send(api, *(item() for _ in range(100)))) == [201] * 100

    assert sum(sizes) >= 100
    assert len(sizes) < 25


async def test_many_batches_at_once_take_turns_and_keep_the_store_free_for_others(api: Api) -> None:
    """Field case 14, at the door: 5,000 items at once made everybody wait 2.7 s, and a third of them were refused."""
    batcher, most = api.store.batcher, 0
    exchange = batcher._channel.exchange

    async def looking(commands: Any, timeout_s: float) -> Any:
        nonlocal most
        most = max(most, len(batcher._waiting))
        return await exchange(commands, timeout_s)

    batcher._channel.exchange = looking  # type: ignore[method-assign]
    answers = await asyncio.gather(*(send(api, *[item()] * 40) for _ in range(15)), send(api, item()))

    assert {each for answer in answers for each in statuses(answer)} == {201}
    assert most <= ALL_AT_ONCE


async def test_a_batch_needs_a_key_that_may_write(api: Api) -> None:
    reader = await api.new_key("t_a", ["jobs:read"])

    assert (await send(api, JOB, key=reader)).code == "missing_scope"
    assert (await send(api, JOB, headers={"Idempotency-Key": ""})).code == "missing_idempotency_key"

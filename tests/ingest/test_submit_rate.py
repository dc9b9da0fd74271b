"""A tenant's rate of submits: 429 with a pause, headers that say what is left, and no repeat that costs one."""

from tests.ingest.api import JOB, Api, log_length


async def test_one_submit_too_many_is_429_with_its_pause_and_policy(api: Api) -> None:
    """Field case 25: another tenant is not slowed down."""
    key = await api.tenant("t_fast", submitsPerMinute=2)
    made = [await api.submit(key) for _ in range(4)]

    refused = await api.submit(key)

    assert [answer.status for answer in made] == [201] * 4
    assert [answer.headers["ratelimit"] for answer in made] == [
        '"submit";r=2;t=0', '"submit";r=2;t=0', '"submit";r=1;t=30', '"submit";r=0;t=60',
    ]  # fmt: skip
    assert made[0].headers["ratelimit-policy"] == refused.headers["ratelimit-policy"] == '"submit";q=2;w=60'
    assert (refused.status, refused.code, refused.body["violated-policies"]) == (429, "rate_limited", ["submit"])
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    assert refused.headers["ratelimit"].startswith('"submit";r=0')
    assert await log_length(api) == 4
    other = await api.submit()
    assert other.status == 201
    assert "ratelimit" not in other.headers
    assert "ratelimit-policy" not in other.headers


async def test_a_repeat_of_a_key_costs_nothing_and_is_answered_when_nothing_is_left(api: Api) -> None:
    key = await api.tenant("t_fast", submitsPerMinute=1)
    named = [{"Idempotency-Key": name} for name in ("one", "two", "three")]

    first, again, second = [await api.submit(key, headers=each) for each in (named[0], named[0], named[1])]
    refused = await api.submit(key, headers=named[2])
    repeat = await api.submit(key, headers=named[0])

    assert [answer.status for answer in (first, again, second, repeat)] == [201, 200, 201, 200]
    assert repeat.body["id"] == first.body["id"]
    assert repeat.headers["ratelimit"].startswith('"submit";r=0')
    assert (refused.status, refused.code) == (429, "rate_limited")


async def test_a_batch_tells_the_least_that_was_left_to_its_items(api: Api) -> None:
    key = await api.tenant("t_fast", submitsPerMinute=6)
    batches = [{"jobs": [JOB] * count} for count in (7, 4, 2)] + [{"jobs": [JOB | {"model": "none"}]}]

    some, none, over, wrong = [await api.call("POST", "/v1/jobs/batch", key=key, json=body) for body in batches]

    assert [each["status"] for each in over.body["data"]] == [201, 429]
    assert [answer.headers["ratelimit"] for answer in (some, none, over)] == [
        '"submit";r=5;t=10', '"submit";r=1;t=50', '"submit";r=0;t=60',
    ]  # fmt: skip
    assert {answer.headers["ratelimit-policy"] for answer in (some, none, over, wrong)} == {'"submit";q=6;w=60'}
    assert "ratelimit" not in wrong.headers
    assert "ratelimit-policy" not in (await api.call("POST", "/v1/jobs/batch", json=batches[0])).headers


async def test_a_rate_that_is_taken_back_is_no_limit_any_more(api: Api) -> None:
    key = await api.tenant("t_fast", submitsPerMinute=1)
    assert [(await api.submit(key)).status for _ in range(3)] == [201, 201, 429]

    await api.admin("PATCH", "/admin/v1/tenants/t_fast", json={"limits": {"submitsPerMinute": None}})

    assert [(await api.submit(key)).status for _ in range(3)] == [201] * 3


async def test_a_refusal_is_counted(api: Api) -> None:
    key = await api.tenant("t_fast", submitsPerMinute=1)
    for _ in range(3):
        await api.submit(key)

    text = (await api.get("/metrics")).raw.decode()

    assert 'headrace_ratelimited_total{policy="submit"} 1.0' in text

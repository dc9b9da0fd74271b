"""POST /v1/jobs: what is accepted is durable, what is refused leaves no trace."""

import asyncio
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from contracts.store import keys
from contracts.wire import Entry
from tests.ingest.api import JOB, Api, log_length
from tests.store.play import Play


async def test_a_submitted_job_is_in_the_log_and_is_shown_as_it_was_answered(api: Api) -> None:
    made = await api.submit(input={"steps": 30}, metadata={"cart": "9"}, webhookUrl="https://app.example/hook")

    assert made.status == 201
    assert made.headers["location"] == f"/v1/jobs/{made.body['id']}"
    assert made.headers["etag"] == '"1"'
    assert (made.body["status"], made.body["model"], made.body["tenantId"]) == ("queued", "draw@1", "t_a")
    history = await api.store.jobs.history("default", made.body["id"], with_body=True)
    assert history is not None
    assert [entry.type for entry in history.entries] == ["job.created"]
    assert (await api.get(made.headers["location"])).body == made.body
    spec = orjson.loads(history.body)
    assert (spec["prompt"], spec["userId"], spec["pool"]) == ("an onion", "u_42", "default")
    assert spec["webhookEvents"] == ["job.started", "job.cancelled", "job.completed", "job.failed", "job.expired"]


async def test_the_log_holds_digests_and_never_the_words_of_the_caller(api: Api) -> None:
    await api.job(prompt="a secret onion", userId="alice@example.org")

    entries = await api.store.client.xrange(keys.log("default"))

    assert b"onion" not in repr(entries).encode()
    assert b"alice" not in repr(entries).encode()


async def test_a_missing_seed_is_drawn_and_a_given_one_kept(api: Api) -> None:
    drawn, given = await api.submit(), await api.submit(input={"seed": 7})

    assert 0 <= drawn.body["input"]["seed"] <= 999_999
    assert given.body["input"]["seed"] == 7


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"model": "nothing"}, "/model"),
        ({"model": "draw@9"}, "/model"),
        ({"input": {"steps": "30"}}, "/input/steps"),
        ({"input": {"steps": 151}}, "/input/steps"),
        ({"input": {"size": 1}}, "/input/size"),
        ({"prompt": " "}, "/prompt"),
        ({"priority": -1}, "/priority"),
        ({"pool": "other"}, "/pool"),
        ({"pool": "a{b}:*\n"}, "/pool"),
        ({"userId": "x" * 300 + ":{}*\n"}, "/userId"),
        ({"webhok": "https://app.example"}, "/webhok"),
        ({"webhookUrl": "https://app.example", "webhookEvents": ["job.done"]}, "/webhookEvents/0"),
        ({"webhookUrl": "http://app.example/hook"}, "/webhookUrl"),
        ({"webhookUrl": "https://127.0.0.1/hook"}, "/webhookUrl"),
    ],
)
async def test_bad_input_is_422_with_a_pointer_and_nothing_is_written(
    api: Api, fields: dict[str, object], pointer: str
) -> None:
    """Field cases 7 and 98: validation happens before the queue, and names the field."""
    before = sorted(await api.store.client.keys("*"))

    refused = await api.submit(**fields)

    assert refused.status == 422
    assert refused.pointers == [pointer]
    assert await log_length(api) == 0
    assert sorted(await api.store.client.keys("*")) == before


@pytest.mark.parametrize(
    "raw",
    [
        b'{"input":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"userId":"a","userId":"b"}',
        b'{"prompt":NaN}',
        b'{"prompt":"\\ud800"}',
        b'{"seed":' + b"1" * 5_000 + b"}",
        b"\xef\xbb\xbf{}",
        '{"prompt":"é"}'.encode("latin-1"),
    ],
)
async def test_odd_json_is_a_problem_and_nothing_is_written(api: Api, raw: bytes) -> None:
    """Field case 2: 4xx JSON problem for each, nothing in the store."""
    refused = await api.call("POST", "/v1/jobs", data=raw)

    assert (refused.status, refused.code) == (400, "malformed_json")
    assert await log_length(api) == 0


async def test_a_twenty_megabyte_prompt_is_413(api: Api) -> None:
    """Field cases 2 and 11: payload size is limited."""
    refused = await api.call("POST", "/v1/jobs", data=orjson.dumps(JOB | {"prompt": "x" * (20 << 20)}))

    assert (refused.status, refused.code) == (413, "payload_too_large")


async def test_a_tenant_gets_exactly_what_its_limit_allows_however_many_ask_at_once(api: Api) -> None:
    """Field case 5: overload is refused in time, with Retry-After, without a trace, and only for that tenant."""
    small = await api.tenant("t_small", queuedJobs=10)

    answers = await asyncio.gather(*(api.submit(small) for _ in range(60)))

    assert sorted(answer.status for answer in answers) == [201] * 10 + [429] * 50
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.code == "quota_exceeded"
    assert refused.body["type"].endswith("#quota-exceeded")
    assert refused.body["violated-policies"] == ["queuedJobs"]
    assert await log_length(api) == 10
    assert (await api.submit()).status == 201
    used = (await api.get("/v1/limits", key=small)).body
    assert (used["limits"]["queuedJobs"], used["use"]["default"]["queuedJobs"]) == (10, 10)


async def test_a_tenant_is_limited_by_bytes_as_well(api: Api) -> None:
    key = await api.tenant("t_bytes", queuedBytes=3_000)

    answers = [await api.submit(key, prompt="x" * 900) for _ in range(4)]

    assert [answer.status for answer in answers] == [201, 201, 429, 429]
    assert answers[-1].body["violated-policies"] == ["queuedBytes"]


async def test_an_ended_job_gives_its_place_back(api: Api) -> None:
    key = await api.tenant("t_one", queuedJobs=1)
    made = await api.submit(key)
    assert (await api.submit(key)).status == 429

    await api.call("POST", f"/v1/jobs/{made.body['id']}/cancel", key=key)

    assert (await api.submit(key)).status == 201


async def test_a_job_with_a_run_at_time_is_scheduled(api: Api) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)

    made = await api.submit(runAt=at.isoformat())

    assert (made.status, made.body["status"], made.body["sequence"]) == (201, "scheduled", 2)
    assert made.body["scheduledFor"][:19] == at.isoformat()[:19]
    assert (await api.get(made.headers["location"])).body == made.body


async def test_waiting_ends_with_the_job(api: Api, play: Play) -> None:
    waiting = asyncio.create_task(api.submit(headers={"Prefer": "wait=30"}))
    job_id = await _only_job(api)
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    await play.completes(attempt)

    answer = await waiting

    assert (answer.status, answer.body["status"], answer.headers["preference-applied"]) == (200, "completed", "wait=30")


async def test_waiting_ends_with_its_time(api: Api) -> None:
    at_once = await api.submit(headers={"Prefer": "respond-async"})
    assert (at_once.status, at_once.headers["preference-applied"]) == (201, "respond-async")
    answer = await api.submit(headers={"Prefer": "wait=0"})

    assert (answer.status, answer.body["status"]) == (202, "queued")


async def test_a_service_that_stops_answers_those_who_wait(api: Api) -> None:
    waiting = asyncio.create_task(api.submit(headers={"Prefer": "wait=60"}))
    await _only_job(api)

    await api.service._hub.aclose()

    assert (await waiting).status == 202


async def test_a_request_that_comes_while_the_service_stops_waits_for_nothing(api: Api) -> None:
    """Its body may have been half read at the signal; a wait of a minute would outlast the drain."""
    await api.service._hub.aclose()

    async with asyncio.timeout(20):
        assert (await api.submit(headers={"Prefer": "wait=60"})).status == 202


async def test_a_trace_context_is_kept_and_a_malformed_one_is_not(api: Api) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    good = await api.submit(headers={"traceparent": trace})
    bad = await api.submit(headers={"traceparent": "00-zz"})

    for made, expected in ((good, trace), (bad, None)):
        events = await api.get(f"/v1/jobs/{made.body['id']}/events")
        assert events.body["data"][0]["data"].get("traceparent") == expected


async def _only_job(api: Api) -> str:
    entries = await api.store.tail("default", "0-0").read(block_ms=5_000)
    return next(each.subject for each in entries if isinstance(each, Entry) and each.type == "job.created")

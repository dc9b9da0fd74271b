"""POST /v1/jobs/cancel: many jobs by their ids or by a filter, page by page, after a dry run."""

import asyncio
from typing import Any

import pytest

from services.ingest.handlers import cancel_many
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from tests.ingest.api import Answer, Api, log_length
from tests.store.play import Play

COUNTS = ("matched", "cancelled", "requested", "skipped", "failed")


async def cancel(api: Api, key: str | None = None, **body: Any) -> Answer:
    return await api.call("POST", "/v1/jobs/cancel", key=key, json=body)


def counts(answer: Answer) -> tuple[int, ...]:
    assert answer.status == 200, answer.body
    return tuple(answer.body[name] for name in COUNTS)


async def start(api: Api, play: Play, job_id: str, slot: int = 0) -> None:
    attempt, started = play.starting(await play.offers(job_id, slot))
    await api.store.attempts.start(attempt, started)


async def status(api: Api, job_id: str) -> str:
    return str((await api.get(f"/v1/jobs/{job_id}")).body["status"])


async def test_ids_are_cancelled_each_as_it_stands(api: Api, play: Play) -> None:
    """Waiting, running, ended, doubled, unknown and foreign ones in one call."""
    waiting, offered, running, ended = [await api.job() for _ in range(4)]
    await play.offers(offered, 1)
    await start(api, play, running)
    await api.call("POST", f"/v1/jobs/{ended}/cancel")
    other = await api.tenant("t_b")
    foreign = (await api.submit(other)).body["id"]
    unknown = waiting[:-6] + "zzzz" + waiting[-2:]

    done = await cancel(api, ids=[waiting, offered, running, ended, waiting, unknown, foreign, "job_1", "%00"])

    assert counts(done) == (4, 2, 1, 1, 4)
    assert (done.body["state"], done.body["hasMore"], done.body["dryRun"]) == ("completed", False, False)
    assert {each["code"] for each in done.body["failures"]} == {"job_not_found"}
    assert [each["id"] for each in done.body["failures"]] == [unknown, foreign, "job_1", "%00"]
    assert await status(api, offered) == "cancelled"
    assert (await api.get(f"/v1/jobs/{foreign}", key=other)).body["status"] == "queued"
    assert await play.types(running) == ["job.created", "job.assigned", "job.started", "job.cancel_requested"]

    before = await log_length(api)
    assert counts(await cancel(api, ids=[waiting, offered, running, ended])) == (4, 0, 0, 4, 0)
    assert await log_length(api) == before


async def test_a_dry_run_counts_and_writes_nothing(api: Api, play: Play) -> None:
    jobs = [await api.job(priority="low") for _ in range(12)]
    await api.job(priority="high")
    before = await log_length(api)

    tried = await cancel(api, filter={"priority": "low"}, dryRun=True)

    assert counts(tried) == (12, 0, 0, 0, 0)
    assert tried.body["sample"] == sorted(jobs, reverse=True)[:10]
    assert await log_length(api) == before
    assert counts(await cancel(api, filter={"priority": "low"})) == (12, 12, 0, 0, 0)
    assert counts(await cancel(api, filter={"priority": "low"})) == (0, 0, 0, 0, 0)


async def test_each_filter_means_what_it_means_in_the_list(api: Api, play: Play) -> None:
    """Field case 146: exactly the jobs that the list shows under the same filters."""
    jobs = [
        await api.job(userId="u_1", metadata={"cart": "9"}),
        await api.job(userId="u_2", pool="large"),
        await api.job(model="echo"),
        await api.job(priority="urgent", metadata={"cart": "9", "shop": "a"}),
    ]
    await start(api, play, jobs[2])
    ended = await api.job(userId="u_1")
    await api.call("POST", f"/v1/jobs/{ended}/cancel")
    questions: list[tuple[dict[str, object], str]] = [
        ({}, "status=queued&status=in_progress&status=scheduled"),
        ({"status": "in_progress"}, "status=in_progress"),
        ({"status": ["queued"], "userId": "u_1"}, "status=queued&userId=u_1"),
        ({"metadata": {"cart": "9"}}, "metadata.cart=9"),
        ({"metadata": {"cart": "9", "shop": "a"}, "priority": "urgent"}, "metadata.shop=a&priority=urgent"),
        ({"pool": "large"}, "pool=large"),
        ({"model": "draw"}, "status=queued&model=draw"),
        ({"model": "echo@1"}, "model=echo@1"),
        ({"q": jobs[1]}, f"q={jobs[1]}"),
        ({"createdAfter": "2100-01-01T00:00:00Z"}, "createdAfter=2100-01-01T00:00:00Z"),
        ({"createdBefore": "2100-01-01T00:00:00Z"}, "status=queued,in_progress&createdBefore=2100-01-01T00:00:00Z"),
        ({"pool": "nowhere"}, "pool=nowhere"),
    ]
    for wanted, query in questions:
        shown = [job["id"] for job in (await api.get(f"/v1/jobs?{query}")).body["data"]]
        assert (await cancel(api, filter=wanted, dryRun=True)).body["sample"] == shown, wanted


async def test_a_filter_goes_on_page_by_page_to_its_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_many, "STEP", 3)
    monkeypatch.setattr(cancel_many, "MAX_SCANNED", 6)
    jobs = [await api.job(priority="low" if n % 2 else "high") for n in range(15)]
    other = await api.tenant("t_b")

    first = await cancel(api, filter={"priority": "low"})
    late = await api.job(priority="low")
    cursor = first.body["nextCursor"]
    for wrong in ({"priority": "high"}, {}):
        assert (await cancel(api, filter=wrong, cursor=cursor)).code == "bad_cursor"
    assert (await cancel(api, filter={"priority": "low"}, dryRun=True, cursor=cursor)).code == "bad_cursor"
    assert (await cancel(api, other, filter={"priority": "low"}, cursor=cursor)).code == "bad_cursor"
    pages = [first]
    while pages[-1].body["hasMore"]:
        pages.append(await cancel(api, filter={"priority": "low"}, cursor=pages[-1].body["nextCursor"]))

    assert {page.body["id"] for page in pages} == {first.body["id"]}
    assert [page.body["state"] for page in pages] == ["in_progress"] * (len(pages) - 1) + ["completed"]
    assert sum(page.body["cancelled"] for page in pages) == 7
    assert [await status(api, job_id) for job_id in jobs] == ["queued", "cancelled"] * 7 + ["queued"]
    assert await status(api, late) == "queued"


async def test_a_job_that_has_left_the_filter_is_spared(api: Api, play: Play) -> None:
    """Whoever cancels what is queued does not mean the one that starts at this very moment."""
    job_id = await api.job()
    reader = JobReader(api.service.context)
    caller = Caller("t_a", "key_x", frozenset())
    seen = await reader.need(caller, job_id)
    await start(api, play, job_id)

    done = await Canceller(api.service.context, reader).apply(seen, caller, lambda state: state.status == "queued")

    assert (done.outcome, done.now) == ("spared", False)
    assert await status(api, job_id) == "in_progress"
    assert "job.cancel_requested" not in await play.types(job_id)


async def test_two_operations_at_once_cancel_each_job_once(api: Api) -> None:
    jobs = [await api.job() for _ in range(30)]

    done = await asyncio.gather(*(cancel(api, filter={}) for _ in range(3)), cancel(api, ids=jobs))

    assert sum(answer.body["cancelled"] for answer in done) >= 30
    assert all(answer.body["failed"] == 0 for answer in done)
    assert await log_length(api) == 60


async def test_another_tenants_jobs_are_never_met(api: Api) -> None:
    other = await api.tenant("t_b")
    job_id = await api.job()

    assert counts(await cancel(api, other, filter={})) == (0, 0, 0, 0, 0)
    assert counts(await cancel(api, other, ids=[job_id])) == (0, 0, 0, 0, 1)
    assert await status(api, job_id) == "queued"
    reader = await api.new_key("t_a", ["jobs:read"])
    assert (await cancel(api, reader, filter={}, dryRun=True)).code == "missing_scope"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"ids": ["job_1"], "filter": {}}, ""),
        ({"ids": []}, "/ids"),
        ({"ids": ["job_1"] * 1_001}, "/ids"),
        ({"ids": "job_1"}, "/ids"),
        ({"ids": ["job_1"], "cursor": "x"}, "/cursor"),
        ({"filter": {"status": "completed"}}, "/filter/status/0"),
        ({"filter": {"status": []}}, "/filter/status"),
        ({"filter": {"prio": "low"}}, "/filter/prio"),
        ({"filter": {"createdAfter": "yesterday"}}, "/filter/createdAfter"),
        ({"filter": {"q": "job_%"}}, "/filter/q"),
        ({"filter": {}, "dryRun": "yes"}, "/dryRun"),
    ],
)
async def test_a_bad_question_is_422_and_never_a_wider_answer(api: Api, body: dict[str, Any], pointer: str) -> None:
    job_id = await api.job()

    refused = await cancel(api, **body)

    assert (refused.status, refused.pointers) == (422, [pointer])
    assert await status(api, job_id) == "queued"

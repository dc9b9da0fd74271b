"""The event log as callers read it: over live log and archive, through filters, page by page, and by nobody else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from contracts import events as ev
from contracts.positions import entry_key, parse_position
from contracts.store import keys
from services.ingest.events import scan
from services.ingest.events.query import EventQuery
from services.ingest.service import IngestService
from tests.archive.rig import Log
from tests.ingest.api import ADMIN_KEY, Api
from tests.store.play import Play


@pytest.fixture
def log(api: Api) -> Log:
    """The log of the default pool, to be sealed and trimmed by hand where the service looks for the archive."""
    return Log(api.store, api.service.context.settings.data_dir / "archive")


async def run_job(api: Api, play: Play, **fields: Any) -> str:
    """Submit a job and let it complete."""
    job_id = await api.job(**fields)
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    await api.store.attempts.emit(attempt, [ev.JobProgress(progress=40, step=4, total_steps=10)])
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
    return job_id


async def pages(api: Api, path: str, limit: int = 3, **more: Any) -> list[dict[str, Any]]:
    """Read a list to its end, page by page."""
    found, cursor = [], ""
    joiner = "&" if "?" in path else "?"
    while True:
        answer = await api.get(f"{path}{joiner}limit={limit}{cursor and '&cursor=' + cursor}", **more)
        assert answer.status == 200, answer.body
        assert len(answer.body["data"]) <= limit
        found += answer.body["data"]
        if not answer.body["hasMore"]:
            return found
        cursor = answer.body["nextCursor"]


async def seal_and_trim(log: Log, count: int = 10_000) -> None:
    await log.seal(count)
    await log.snapshot_here()
    await log.trim()


async def test_a_list_shows_what_the_jobs_show_in_the_order_of_the_log(api: Api, play: Play) -> None:
    jobs = [await run_job(api, play) for _ in range(3)]
    of_jobs = [each for job in jobs for each in (await api.get(f"/v1/jobs/{job}/events")).body["data"]]

    listed = await pages(api, "/v1/events")

    assert listed == sorted(of_jobs, key=lambda each: entry_key(parse_position(each["position"]).entry))
    assert await pages(api, "/v1/events?order=desc") == listed[::-1]


async def test_a_list_is_the_same_whatever_is_sealed_and_trimmed(api: Api, play: Play, log: Log) -> None:
    """Reading goes on where the log was trimmed, without a hole."""
    for _ in range(4):
        await run_job(api, play)
    before, backwards = await pages(api, "/v1/events"), await pages(api, "/v1/events?order=desc", limit=4)

    await log.seal(7)
    assert await pages(api, "/v1/events") == before
    await seal_and_trim(log, 7)
    assert await api.store.client.xlen(keys.log("default")) < len(before)

    assert await pages(api, "/v1/events") == before
    assert await pages(api, "/v1/events?order=desc", limit=4) == backwards
    one = (await api.get(f"/v1/events/{before[0]['id']}")).body
    assert one == before[0] | {"hash": one["hash"]}


async def test_a_page_goes_on_while_the_log_is_trimmed_under_it(api: Api, play: Play, log: Log) -> None:
    for _ in range(3):
        await run_job(api, play)
    whole = await pages(api, "/v1/events")
    first = (await api.get("/v1/events?limit=4")).body
    await seal_and_trim(log)

    rest = (await api.get(f"/v1/events?limit=100&cursor={first['nextCursor']}")).body

    assert first["data"] + rest["data"] == whole


async def test_a_place_that_is_gone_is_told_and_not_jumped(api: Api, play: Play) -> None:
    """Field case 77 for lists: a reader that comes back too late hears so, and where it may go on."""
    await run_job(api, play)
    first = (await api.get("/v1/events?limit=1")).body
    await run_job(api, play)
    end = await api.store.end_of_log("default")
    await api.store.client.xtrim(keys.log("default"), minid=end, approximate=False)
    await api.store.client.hset(keys.meta("default"), "trimmed", end)

    for path in (f"limit=1&cursor={first['nextCursor']}", f"after={first['data'][0]['position']}"):
        answer = await api.get(f"/v1/events?{path}")
        assert (answer.status, answer.code) == (410, "cursor_expired")
        assert parse_position(answer.body["oldest"]).entry == end
    assert [each["position"].split(".")[-1] for each in await pages(api, "/v1/events")] == [end]


async def test_filters_ask_for_exactly_what_they_say(api: Api, play: Play) -> None:
    mine, other = await run_job(api, play), await run_job(api, play, userId="u_7")
    everything = await pages(api, "/v1/events")

    def those(wanted: Any) -> list[dict[str, Any]]:
        return [each for each in everything if wanted(each)]

    middle = everything[4]
    bounds = f"after={everything[1]['position']}&before={everything[6]['position']}"
    assert await pages(api, f"/v1/events?jobId={mine}") == those(lambda each: each["subject"] == mine)
    assert await pages(api, "/v1/events?userId=u_7") == those(lambda each: each["subject"] == other)
    assert await pages(api, "/v1/events?userId=nobody") == []
    assert await pages(api, "/v1/events?type=job.progress,job.created") == those(
        lambda each: each["type"] in ("job.progress", "job.created")
    )
    assert await pages(api, "/v1/events?type=job.*") == everything
    assert await pages(api, f"/v1/events?{bounds}") == everything[2:6]
    assert await pages(api, f"/v1/events?from={middle['time']}") == those(lambda each: each["time"] >= middle["time"])
    assert (
        await pages(api, f"/v1/events?to={middle['time']}&order=desc")
        == those(lambda each: each["time"] < middle["time"])[::-1]
    )


@pytest.mark.parametrize(
    "query",
    ["type=job.nothing", "order=up", "limit=501", "from=yesterday", "after=1-0", "jobId=job_x", "workerId=wrk_1",
     "tenantId=t_b", "after=zz.1.5-0", "before=aa.1.5-0&after=ab.1.5-0", "userId="],
)  # fmt: skip
async def test_what_is_no_question_is_refused(api: Api, query: str) -> None:
    answer = await api.get(f"/v1/events?{query}")

    assert (answer.status, answer.code) == (400, "bad_parameter")


async def test_a_cursor_belongs_to_its_question_and_its_tenant(api: Api, play: Play) -> None:
    await run_job(api, play)
    cursor = (await api.get("/v1/events?limit=1")).body["nextCursor"]
    stranger = await api.tenant("t_b")

    for more, key in (("&type=job.*", None), ("&order=desc", None), ("", stranger)):
        answer = await api.get(f"/v1/events?limit=1&cursor={cursor}{more}", key=key)
        assert (answer.status, answer.code) == (400, "bad_cursor")


async def test_nobody_sees_what_is_not_theirs(api: Api, play: Play, log: Log) -> None:
    """A tenant sees no event of another, by list, by id, by filter; nor those of workers and pools."""
    mine = await run_job(api, play)
    stranger = await api.tenant("t_b")
    theirs = (await api.submit(stranger)).body["id"]

    for sealed in (False, True):
        if sealed:
            await seal_and_trim(log)
        assert {each["subject"] for each in await pages(api, "/v1/events")} == {mine}
        assert {each["subject"] for each in await pages(api, "/v1/events", key=stranger)} == {theirs}
        assert await pages(api, f"/v1/events?jobId={mine}", key=stranger) == []
        foreign = await api.get(f"/v1/events/evt_{mine[4:]}_1", key=stranger)
        unknown = await api.get("/v1/events/evt_x", key=stranger)
        assert {foreign.code, unknown.code} == {"event_not_found"}
    no_scope = await api.new_key("t_a", ["jobs:read"])
    assert (await api.get("/v1/events", key=no_scope)).code == "missing_scope"
    assert (await api.get("/admin/v1/events")).code == "missing_scope"


async def test_a_forgotten_job_is_still_its_tenants(api: Api, play: Play, log: Log) -> None:
    """Whose events they are is told by the events themselves once the job's hash is gone."""
    job_id = await run_job(api, play)
    shown = await pages(api, "/v1/events")
    stranger = await api.tenant("t_b")
    await api.store.client.delete(keys.job("default", job_id), keys.body("default", job_id))

    for sealed in (False, True):
        if sealed:
            await seal_and_trim(log)
        # another process: what this one remembers must not be what answers
        async with another(api) as fresh:
            assert await pages(fresh, "/v1/events?order=desc") == shown[::-1]
            assert await pages(fresh, "/v1/events", key=stranger) == []
            assert (await fresh.get(f"/v1/events/{shown[2]['id']}")).body["data"] == shown[2]["data"]


@asynccontextmanager
async def another(api: Api) -> AsyncIterator[Api]:
    """Another process of the same service."""
    service = IngestService(api.service.context.settings)
    await service.start()
    try:
        await service.context.opened.wait()
        yield Api(service, api.session, api.key)
    finally:
        await service.stop()


async def test_an_operator_sees_everybody_and_the_workers(api: Api, play: Play) -> None:
    mine = await run_job(api, play)
    stranger = await api.tenant("t_b")
    theirs = (await api.submit(stranger)).body["id"]

    subjects = {each["subject"] for each in await pages(api, "/admin/v1/events", key=ADMIN_KEY)}
    of_worker = await pages(api, f"/admin/v1/events?workerId={play.worker}", key=ADMIN_KEY)
    of_tenant = await pages(api, "/admin/v1/events?tenantId=t_b", key=ADMIN_KEY)

    assert subjects == {mine, theirs, play.worker}
    assert [each["type"] for each in of_worker] == ["worker.registered", "job.assigned", "job.started"]
    assert {each["subject"] for each in of_tenant} == {theirs}


async def test_a_page_looks_at_a_bounded_number_of_entries(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fits nothing costs pages, not one endless request."""
    monkeypatch.setattr(scan, "STEP", 5)
    for _ in range(5):
        await run_job(api, play)
    everything = await pages(api, "/v1/events", limit=500)
    reader = api.service.events
    query = EventQuery("t_a", types=("job.completed",))
    one = reader.scan(query, None)

    found = await one.step(100, most_scanned=10)

    assert one.scanned <= 15
    assert not one.is_over
    more = await reader.scan(query, reader.cursor(query, one)).step(100)
    assert [*found, *more] == [each for each in everything if each["type"] == "job.completed"]


async def test_events_carry_their_hash_once_they_are_sealed(api: Api, play: Play, log: Log) -> None:
    await run_job(api, play)
    last = (await pages(api, "/v1/events"))[-1]
    assert (await api.get(f"/v1/events/{last['id']}")).body["hash"] is None

    await log.seal(10_000)

    manifest = await api.store.archive.manifest("default")
    assert manifest is not None
    assert (await api.get(f"/v1/events/{last['id']}")).body["hash"] == manifest.digest


async def test_events_of_other_versions_are_listed_replayed_and_folded(api: Api, log: Log) -> None:
    """Field case 80: an unknown type and an unknown field are kept and skipped, with their version."""
    job_id = await api.job()
    created = (await api.get(f"/v1/jobs/{job_id}")).body
    end = await api.store.end_of_log("default")
    newer = {"t": "job.teleported/3", "j": job_id, "n": 2, "p": end, "d": '{"to":"mars"}'}
    position = await api.store.client.xadd(keys.log("default"), newer)  # type: ignore[arg-type]
    data = '{"priority":"high","previous":"normal","later":true}'
    known = {"t": "job.priority_changed", "j": job_id, "n": 3, "p": position, "d": data}
    last = await api.store.client.xadd(keys.log("default"), known)  # type: ignore[arg-type]
    await api.store.client.hset(keys.job("default", job_id), mapping={"n": 3, "p": last})

    for sealed in (False, True):
        if sealed:
            await seal_and_trim(log)
        listed = await pages(api, "/v1/events")
        assert [(each["type"], each["version"]) for each in listed[1:]] == [
            ("job.teleported", 3), ("job.priority_changed", 1),
        ]  # fmt: skip
        assert listed[1]["data"] == {"to": "mars"}
        assert listed[2]["data"]["later"] is True
        shown = (await api.get(f"/v1/jobs/{job_id}?at={listed[1]['position']}")).body
        assert (shown["status"], shown["sequence"], shown["priority"]) == (created["status"], 2, "normal")
        assert (await api.get(f"/v1/jobs/{job_id}?at={listed[2]['position']}")).body["priority"] == "high"
        assert (await api.get("/v1/state")).body["counts"]["queued"] == 1

"""What tenants used: exact with and without an archivist, each tenant its own, in pages and as CSV."""

import threading
import time
from typing import Any

import pytest
import structlog

from contracts import events as ev
from contracts.archive import Archive
from contracts.artifacts import open_archive_objects
from contracts.store import keys
from contracts.times import DAY_MS, day_text, instant
from contracts.usage import reading
from contracts.usage.rows import Key
from services.archivist.config import ArchivistConfig, Pace
from services.archivist.pool import PoolArchivist
from services.ingest.views.usage import UsageQuery, as_csv
from tests.ingest.api import ADMIN_KEY, Api
from tests.store.play import Play

USED = ("jobsCreated", "jobsCompleted", "gpuMs", "loadMs", "artifactBytes", "deliveries")


async def run_job(api: Api, play: Play, gpu_ms: int, **fields: Any) -> None:
    job_id = await api.job(**fields)
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    loaded = ev.ModelLoadCompleted(model="draw", ms=gpu_ms // 10)
    await api.store.attempts.emit(attempt, [loaded, ev.JobDeviceReleased(gpu_ms=gpu_ms)])
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)


async def archive(api: Api) -> None:
    settings = api.service.context.settings
    config = ArchivistConfig(Pace(0, 10, 0), checkpoint_ms=10**9)
    archive = Archive(api.store, open_archive_objects(settings))
    archivist = PoolArchivist(
        api.store, archive, api.service.context.shelf, "here", "default", config, structlog.get_logger()
    )
    await archivist.run_once()
    await archivist._resign()


async def used(api: Api, path: str = "/v1/usage", **more: Any) -> list[list[object]]:
    answer = await api.get(path, **more)
    assert answer.status == 200, answer.body
    return [[line[name] for name in USED] for line in answer.body["data"]]


async def test_usage_is_exact_with_and_without_an_archivist(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not counted yet is folded on top; what is counted meanwhile is not counted twice."""
    other = await api.tenant("t_b")
    await run_job(api, play, 700)
    await run_job(api, play, 300, key=other, model="echo")
    await run_job(api, play, 50)
    alone = await used(api)
    assert alone == [[2, 2, 750, 75, 0, 0]]
    lost = await api.job()
    assert await used(api) == [[3, 2, 750, 75, 0, 0]]
    await api.store.client.xdel(keys.log("default"), await api.store.end_of_log("default"))
    await api.store.client.delete(keys.job("default", lost))
    await api.store.client.hincrby(keys.meta("default"), "epoch", 1)
    assert await used(api) == alone  # the log that was folded is not this one

    await archive(api)
    assert await used(api) == alone
    await run_job(api, play, 1)
    assert await used(api) == [[3, 3, 751, 75, 0, 0]]
    await archive(api)
    assert await used(api) == [[3, 3, 751, 75, 0, 0]]

    assert await used(api, key=other) == [[1, 1, 300, 30, 0, 0]]
    everybody = await api.admin("GET", "/admin/v1/usage?groupBy=tenantId,model")
    assert [(each["tenantId"], each["model"], each["gpuMs"]) for each in everybody.body["data"]] == [
        ("t_a", "draw@1", 751), ("t_b", "echo@1", 300)
    ]  # fmt: skip
    assert await used(api, "/admin/v1/usage?tenantId=t_b&groupBy=", key=ADMIN_KEY) == [[1, 1, 300, 30, 0, 0]]
    assert (await api.get("/admin/v1/usage")).code == "missing_scope"

    monkeypatch.setattr(reading, "MOST_FOLDED", 1)
    monkeypatch.setattr(reading, "AT_ONCE", 2)
    await run_job(api, play, 9)
    begun = (await api.get("/v1/usage")).body
    assert (begun["data"][0]["jobsCreated"], begun["data"][0]["jobsCompleted"]) == (4, 3)
    ended_ms = int((await api.store.end_of_log("default")).partition("-")[0])
    assert begun["asOf"] <= str(instant(ended_ms))  # it is exact as of an instant that is not now
    for _ in range(5):
        await api.get("/v1/usage")
    assert await used(api) == [[4, 4, 760, 75, 0, 0]]


async def test_days_that_are_over_are_final_in_pages_and_as_csv(api: Api, play: Play) -> None:
    await run_job(api, play, 40)
    await archive(api)
    counted = (await api.store.usage.look("default", [])).counted
    today = int(counted.upto.partition("-")[0]) // DAY_MS
    row = [5, 4, 1, 0, 0, 1_000, 2, 3, 4, 6]
    rows = {Key(today - back, tenant, "draw@1"): row for back in range(1, 4) for tenant in ("t_a", "t_c")}
    assert (await api.store.usage.mend("default", counted, counted.flights, rows)).applied

    found, cursor = list[Any](), ""
    while True:
        page = (await api.get(f"/v1/usage?limit=2{cursor}")).body
        found += page["data"]
        if not page["hasMore"]:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert [(each["day"], each["gpuMs"], each["final"]) for each in found] == [
        *((day_text(today - back), 1_000, True) for back in (3, 2, 1)), (day_text(today), 40, False)
    ]  # fmt: skip

    span = f"from={day_text(today - 2)}&to={day_text(today)}"
    text = (await api.get(f"/v1/usage?{span}", headers={"Accept": "text/csv"})).raw.decode().splitlines()
    assert text[0].split(",")[:4] == ["day", "model", "jobsCreated", "jobsCompleted"]
    assert text[1:] == [f"{day_text(today - back)},draw@1,5,4,1,0,0,1000,2,3,4,6,true" for back in (2, 1)]
    assert await used(api, f"/v1/usage?{span}&model=draw&groupBy=pool") == [[10, 8, 2_000, 4, 6, 8]]
    assert await used(api, f"/v1/usage?{span}&model=echo") == []


async def test_csv_is_written_where_nobody_else_waits_for_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10,000 lines it takes a tenth of a second."""
    writers = list[threading.Thread]()

    def note(query: UsageQuery, lines: Any) -> str:
        writers.append(threading.current_thread())
        return as_csv(query, lines)

    monkeypatch.setattr("services.ingest.handlers.usage.as_csv", note)
    answer = await api.get("/v1/usage?format=csv")

    assert answer.raw.decode().startswith("day,model,")
    assert len(writers) == 1
    assert writers != [threading.current_thread()]


async def test_today_is_that_of_the_store_whatever_the_clock_of_this_host_says(api: Api, play: Play) -> None:
    """Without `from` and `to` the last days are meant, and what was used a moment ago is among them."""
    await run_job(api, play, 50)
    context = api.service.context
    context.now_ms = behind = lambda: time.time_ns() // 1_000_000 - 2 * DAY_MS
    context.readiness.wall_ms, context.readiness.clock_offset_ms = behind, 2 * DAY_MS

    assert len(await used(api)) == 1


async def test_a_question_that_means_nothing_is_refused(api: Api) -> None:
    for query in (
        "from=2026-11-30&to=2026-11-30", "from=yesterday", "from=2026-1-2", "groupBy=tenantId", "groupBy=day,day",
        "groupBy=weather", "from=2020-01-01", "limit=10001", "tenantId=t_b", "cursor=x",
        "format=xml",
    ):  # fmt: skip
        assert (await api.get(f"/v1/usage?{query}")).code in ("bad_parameter", "bad_cursor"), query

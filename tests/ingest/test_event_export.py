"""Taking the log home: whole, in one piece or several, and nobody else's."""

import asyncio
import gzip
import hashlib
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis

from contracts.errors import Rejected
from contracts.exports import records
from contracts.positions import Position
from contracts.store import keys
from contracts.store.imports import import_logs
from contracts.wire import Entry
from services.ingest.events import scan
from services.ingest.events.query import EventQuery
from tests.archive.rig import Log
from tests.ingest.api import ADMIN_KEY, Api, running_api, settings_for
from tests.ingest.test_events import another, log, pages, run_job, seal_and_trim
from tests.scheduler.rig import eventually
from tests.store.play import Play

__all__ = ["log"]


async def export(api: Api, query: str = "", **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events of an export and its last line, which must be true of them."""
    answer = await api.get(f"/v1/events/export{query}", **more)
    assert answer.status == 200, answer.body
    lines = answer.raw.splitlines(keepends=True)
    end = orjson.loads(lines[-1])
    assert end["type"] == "export.end"
    assert end["count"] == len(lines) - 1
    assert end["sha256"] == hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    return [orjson.loads(line) for line in lines[:-1]], end


def unhashed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events as a list shows them: the hash of what is sealed is in exports only."""
    return [{name: value for name, value in event.items() if name != "hash"} for event in events]


async def test_an_export_is_what_the_list_shows_over_archive_and_log(
    api: Api, play: Play, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is missing and none is there twice where archive and log meet."""
    monkeypatch.setattr(scan, "STEP", 3)
    for _ in range(4):
        await run_job(api, play)
    listed = await pages(api, "/v1/events", limit=500)
    await seal_and_trim(log, 8)

    exported, _ = await export(api)
    failures, _ = await export(api, "?type=job.completed")

    assert unhashed(exported) == listed
    assert unhashed(failures) == [each for each in listed if each["type"] == "job.completed"]


async def test_an_export_goes_on_behind_its_end_and_behind_any_line(api: Api, play: Play) -> None:
    """What was cut off is taken up again without a hole."""
    await run_job(api, play)
    first, end = await export(api)
    await run_job(api, play)
    whole, _ = await export(api)

    rest, again = await export(api, f"?cursor={end['nextCursor']}")
    behind, _ = await export(api, f"?after={first[1]['position']}")

    assert [*first, *rest] == whole
    assert behind == whole[2:]
    assert await export(api, f"?cursor={again['nextCursor']}") == ([], again | {"count": 0, "sha256": _NOTHING})


_NOTHING = hashlib.sha256().hexdigest()


async def test_an_export_ends_where_the_log_ended_when_it_began_and_goes_on_there(api: Api, play: Play) -> None:
    """A log that grows faster than it is read would never end; what came meanwhile is behind the cursor."""
    await run_job(api, play)
    query = EventQuery("t_a")
    one = await api.service.events.scan_to_end(query, None)
    late = await run_job(api, play)

    first = await one.step(100)
    rest, _ = await export(api, f"?cursor={api.service.events.cursor(query, one)}")

    assert one.is_over
    assert {each["subject"] for each in rest} == {late}
    assert [*first, *rest] == (await export(api))[0]


async def test_an_export_in_several_pools_goes_on_in_each_of_them(api: Api, play: Play) -> None:
    await run_job(api, play)
    large = await api.job(pool="large")
    whole, _ = await export(api)
    ends = {each["position"][:2]: each["position"] for each in whole[:3]}

    behind, _ = await export(api, "?after=" + ",".join(ends.values()))

    assert behind == whole[3:]
    assert large in {each["subject"] for each in whole}


async def test_an_export_holds_nothing_of_others(api: Api, play: Play) -> None:
    await run_job(api, play)
    stranger = await api.tenant("t_b")
    theirs = (await api.submit(stranger)).body["id"]

    exported, end = await export(api, key=stranger)

    assert {each["subject"] for each in exported} == {theirs}
    stolen = await api.get(f"/v1/events/export?cursor={end['nextCursor']}")
    assert (stolen.status, stolen.code) == (400, "bad_cursor")
    for query in ("after=1-0", "after=aa.1.1-0,aa.1.2-0", "after=zz.1.1-0", "limit=3"):
        assert (await api.get(f"/v1/events/export?{query}")).code == "bad_parameter"


async def test_an_export_is_compressed_for_who_takes_it(api: Api, play: Play) -> None:
    await run_job(api, play)
    headers = {"Authorization": f"Bearer {api.key}", "Accept-Encoding": "gzip"}

    async with api.session.get(api.url + "/v1/events/export", headers=headers, auto_decompress=False) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        packed = await response.read()

    assert gzip.decompress(packed) == (await api.get("/v1/events/export", headers={"Accept-Encoding": ""})).raw


async def test_the_memory_of_an_export_does_not_grow_with_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is, a few hundred events are in memory at a time."""
    monkeypatch.setattr(scan, "STEP", 20)
    monkeypatch.setattr("services.ingest.handlers.event_export.AT_ONCE", 20)
    for number in range(150):
        await api.job(metadata={"n": str(number)})

    await export(api)
    peaks = []
    for limit in ("&to=2020-01-01T00:00:00Z", ""):
        tracemalloc.start()
        async with api.session.get(
            api.url + f"/v1/events/export?type=job.*{limit}", headers={"Authorization": f"Bearer {api.key}"}
        ) as response:
            async for _ in response.content.iter_chunked(1 << 14):
                pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] + 1_000_000


IMPORT = "/admin/v1/events/import?reason=to+look+at+it"
LINES = {"Content-Type": "application/x-ndjson"}


async def forget_all(api: Api, jobs: set[str]) -> None:
    """The pool as one that never had an entry."""
    await api.store.client.delete(keys.log("default"), *(keys.job("default", job_id) for job_id in jobs))


async def test_an_import_shows_what_was_exported_and_tells_nobody(api: Api, play: Play) -> None:
    """Into a log that has none: the same events at the same positions, and no group finds work in it."""
    await run_job(api, play)
    await run_job(api, play)
    exported, end = await export(api)
    whole = (await api.get("/v1/events/export")).raw
    refused = await api.admin("POST", IMPORT, data=whole, headers=LINES)
    assert (refused.status, refused.code) == (409, "log_not_empty")
    jobs = {each["subject"] for each in exported}
    await forget_all(api, jobs)

    answer = await api.admin("POST", IMPORT, data=whole, headers=LINES)

    assert answer.status == 201, answer.body
    assert (answer.body["pools"], answer.body["jobs"], answer.body["sha256"]) == (
        {"default": len(exported)}, 2, end["sha256"],
    )  # fmt: skip
    (told,) = (await api.get("/v1/audit/actions?type=audit.action", key=ADMIN_KEY)).body["data"]
    assert (told["reason"], told["data"]["action"], told["data"]["count"]) == (
        "to look at it",
        "events.import",
        len(exported),
    )
    assert await api.store.client.ttl(keys.log("default")) == -1
    async with another(api) as fresh:
        assert await pages(fresh, "/v1/events", limit=500) == exported
    for group in keys.LOG_GROUPS:
        assert await api.store.group("default", group, "n").read(10, None) == []
    mirror = await api.store.mirror.lead("default", "m", 1, "events")
    assert mirror is not None
    assert mirror.cursor == str(exported[-1]["position"]).split(".")[2]


async def test_what_is_not_a_whole_export_leaves_nothing(api: Api, play: Play) -> None:
    """Cut, changed, too large, of pools that are not here: refused before anything is written, and told why."""
    await run_job(api, play)
    exported, _ = await export(api)
    whole = (await api.get("/v1/events/export")).raw
    lines = whole.splitlines(keepends=True)
    await forget_all(api, {each["subject"] for each in exported})
    names = await api.store.client.dbsize()
    bad = {
        "cut": b"".join(lines[:-1]), "a hole": b"".join(lines[:1] + lines[2:]), "none": b"", "no JSON": b"{",
        "changed": whole.replace(b'"progress":40', b'"progress":41'), "more": whole + lines[0],
        "elsewhere": _summed([line.replace(b'"position":"aa.', b'"position":"zz.') for line in lines]),
    }  # fmt: skip

    for body in bad.values():
        answer = await api.admin("POST", IMPORT, data=body, headers=LINES)
        assert (answer.status, answer.code) == (422, "bad_export"), answer.body
    assert (await api.admin("POST", IMPORT, data=whole)).code == "unsupported_media_type"
    assert (await api.admin("POST", IMPORT.partition("?")[0], data=whole, headers=LINES)).code == "bad_parameter"
    assert (await api.call("POST", IMPORT, data=whole, headers=LINES)).code == "missing_scope"
    assert await api.store.end_of_log("default") == "0-0"
    assert await api.store.client.dbsize() == names


def _summed(lines: list[bytes]) -> bytes:
    """Return changed lines with a last line that is true of them."""
    end = orjson.loads(lines[-1]) | {"sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    return b"".join(lines[:-1]) + orjson.dumps(end) + b"\n"


async def test_an_import_is_no_larger_than_the_operator_allows(store_url: str, tmp_path: Path) -> None:
    """Declared or not: what is more is refused, and no file of it stays."""
    settings = settings_for(store_url, tmp_path, ingest={"import_bytes": 1_000})

    async def unknown_length() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async with running_api(settings) as api:
        for body in (b"x" * 2_000, unknown_length()):
            answer = await api.admin("POST", IMPORT, data=body, headers=LINES)
            assert (answer.status, answer.code) == (413, "payload_too_large")
        assert not list((settings.data_dir / "imports").iterdir())


async def test_a_second_import_is_told_to_come_back(api: Api) -> None:
    """The first may take an hour, and each that waited for it would hold a connection."""
    go_on, folder = asyncio.Event(), api.service.context.settings.data_dir.absolute() / "imports"

    async def slow() -> AsyncIterator[bytes]:
        yield b"{}\n"
        await go_on.wait()

    async def under_way() -> int:
        return len(list(folder.iterdir())) if folder.exists() else 0

    first = asyncio.create_task(api.admin("POST", IMPORT, data=slow(), headers=LINES))
    await eventually(under_way, lambda count: count == 1)
    second = await api.admin("POST", IMPORT, data=b"{}\n", headers=LINES)
    go_on.set()
    assert (second.status, second.code) == (503, "overloaded")
    assert ((await first).status, (await first).code) == (422, "bad_export")


async def test_a_job_that_is_admitted_meanwhile_is_not_written_over(api: Api, play: Play) -> None:
    """The log is looked at again when the import takes its place."""
    await run_job(api, play)
    exported, _ = await export(api)
    whole = (await api.get("/v1/events/export")).raw.splitlines(keepends=True)
    await forget_all(api, {each["subject"] for each in exported})

    def entries() -> Iterator[tuple[Position, Entry]]:
        yield from records(whole, "aa")
        loop_free.xadd(keys.log("default"), {"t": "x"})

    with redis.Redis.from_url(api.service.context.settings.redis.url) as loop_free, pytest.raises(Rejected):
        await import_logs(api.store, {"default": entries()}, "t")

    assert await api.store.client.xlen(keys.log("default")) == 1
    beside = keys.log("default") + ":import:t"
    assert 0 < await api.store.client.ttl(beside) <= 3_600

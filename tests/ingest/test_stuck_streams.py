"""A stream that is open and silent for good would be the worst of all: what stops a reader is passed, or told."""

import asyncio
from typing import Any

import pytest

from contracts.archive.tail import ArchiveTail
from contracts.store import keys
from services.ingest.live import feed
from services.ingest.live.viewer import Viewer
from tests.ingest.api import Api
from tests.ingest.live import Line, listening, progresses
from tests.store.play import POOL, Play


async def test_an_event_that_cannot_be_told_is_passed_with_a_gap_and_stands_before_nobody(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field case 82: one event in 20 raises in its handler: it is tried, then set aside with an alarm; of the others
    each is told, or lies in a gap that is.
    """
    attempt, other = await play.running(), await play.running(slot=1)
    show, tries = Viewer._show, list[str]()

    def raises(viewer: Viewer, entry: Any) -> Any:
        if entry.type == "job.progress" and entry.raw_data()["progress"] == 20:
            tries.append(entry.position)
            raise ValueError("nobody foresaw this")
        return show(viewer, entry)

    monkeypatch.setattr(Viewer, "_show", raises)
    async with listening(api, "/v1/stream") as line:
        await line.next()
        await progresses(play, attempt, *range(1, 40))
        told = await until_gap(line)
        await progresses(play, other, 99)
        while told[-1][0] != "job.progress" or told[-1][2]["data"]["progress"] != 99:
            told.append(await line.next())
    seen = {data["data"]["progress"] for name, _, data in told if name == "job.progress"}
    ((_, _, after),) = [each for each in told if each[0] == "snapshot"]
    in_gap = {job["progress"] for job in after["jobs"] if job["id"] == attempt.job_id}
    assert 20 not in seen
    assert len(set(tries)) == 1
    assert 3 <= len(tries) <= 4
    missing = set(range(1, 40)) - seen
    assert missing <= set(range(1, int(max(in_gap)) + 1))
    assert "stream_entry_not_told" in capsys.readouterr().out


async def test_a_reader_that_fails_reads_on_and_its_age_shows(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 82: whatever is raised in the reader, listeners are told of a gap, and what follows."""
    attempt = await play.running()
    fails = [True]
    real = ArchiveTail.read

    async def raises_once(reader: ArchiveTail, count: int = 200, block_ms: int | None = None) -> Any:
        if fails and count == feed.AT_ONCE:
            fails.clear()
            raise ValueError("nobody foresaw this")
        return await real(reader, count, block_ms)

    monkeypatch.setattr(ArchiveTail, "read", raises_once)
    async with listening(api, f"/v1/jobs/{attempt.job_id}/stream") as line:
        await until_gap(line)
        await progresses(play, attempt, 7)
        (name, _, data) = await line.next()
        assert name == "snapshot"
        if data["job"]["progress"] != 7:
            assert (await line.next())[2]["data"]["progress"] == 7
        shown = (await api.get("/metrics")).body.decode()
    age = next(each for each in shown.splitlines() if each.startswith("headrace_stream_reader_age_seconds{"))
    assert 0 <= float(age.split()[1]) < 5


async def test_a_job_that_cannot_be_read_stops_no_other(api: Api, play: Play) -> None:
    """Field case 82: one broken hash among the tenant's jobs, met after a restart of everything that is remembered."""
    broken, whole = await play.running(), await play.running(slot=1)
    await progresses(play, broken, 1)
    async with listening(api, "/v1/stream?types=job.progress") as line:
        await line.next()
        await api.store.client.hset(keys.job(POOL, broken.job_id), "s", "x")
        await api.store.client.xadd(
            keys.log(POOL),
            {"t": "job.progress/1", "j": broken.job_id, "n": 9, "f": 1, "p": "0-0", "d": '{"progress":2}'},
        )  # fmt: skip
        await progresses(play, whole, 50)
        async with asyncio.timeout(20):
            told = [await line.next()]
            while not _is_told(whole.job_id, 50, told[-1]):
                told.append(await line.next())


def _is_told(job_id: str, percent: float, told: Any) -> bool:
    """Whether a job's progress was told, by its event or by the snapshot behind a gap."""
    name, _, data = told
    if name == "snapshot":
        return any((job["id"], job["progress"]) == (job_id, percent) for job in data["jobs"])
    return name == "job.progress" and (data["subject"], data["data"]["progress"]) == (job_id, percent)


async def until_gap(line: Line) -> list[Any]:
    told = [await line.next()]
    while told[-1][0] != "gap":
        told.append(await line.next())
    return told

"""Events from the past into the present, over a stream that breaks: each once, and a gap where one is told."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from headrace import event_stream
from headrace.client import Client, JsonObject
from headrace.events.exported import Exported
from headrace.events.following import Following
from tests.headrace.scripted import scripted
from tests.ingest.api import Api, running_api, settings_for
from tests.ingest.live import log_of, progresses, replica
from tests.store.play import Play

WAIT_S = 20


async def test_the_past_then_the_present_and_over_a_server_that_restarts_each_event_once(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 76: the last id is kept, so another process goes on."""
    monkeypatch.setattr(event_stream, "FIRST_PAUSE_S", 0.01)
    settings = settings_for(store_url, tmp_path, ingest={"port": 0})
    seen: list[JsonObject] = []
    async with running_api(settings) as first:
        play = await Play(first.store).open()
        attempt = await play.running()
        await progresses(play, attempt, 1)
        await first.job(model="draw")
        export = Exported._once

        async def one_comes_between(exported: Exported) -> AsyncIterator[bytes]:
            await progresses(play, attempt, 2)  # the stream is open: it tells of it, and so does the log
            async for line in export(exported):
                yield line

        monkeypatch.setattr(Exported, "_once", one_comes_between)
        async with Client(first.url, first.key) as client:
            following = Following(client, [("from", "2020-01-01T00:00:00.000Z"), ("model", "echo")])
            reading = asyncio.create_task(_read(following, seen))
            await _until(seen, 5)
            async with replica(settings) as second:
                client.url = second.url  # what the address leads to now
                play.store = second.store
                await first.service.stop()
                await progresses(play, attempt, 3)
                await _until(seen, 6)
                log = await log_of(Api(second.service, second.session, first.key), attempt.job_id)
                assert [event["sequence"] for event in seen] == [event["sequence"] for event in log]
            reading.cancel()


async def test_what_will_not_come_is_shown() -> None:
    """Field case 77: a gap is a line among the events, not silence."""
    event = {"position": "aa.1.9-0", "type": "job.progress", "subject": "job_x"}
    told = [("snapshot", {"jobs": []}), ("gap", {"requested": "aa.1.5-0", "oldest": None}), ("snapshot", {"jobs": []}),
            ("job.progress", event), ("end", {"reason": "unauthenticated"})]  # fmt: skip
    body = b"".join(b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(data)) for name, data in told)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream")

    async with scripted(answer) as client:
        assert [each async for each in Following(client, []).events()] == [{"type": "gap"} | told[1][1], event]


async def _read(following: Following, seen: list[JsonObject]) -> None:
    async for event in following.events():
        seen.append(event)


async def _until(seen: list[JsonObject], count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(seen) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

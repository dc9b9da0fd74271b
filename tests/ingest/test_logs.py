"""What a job's attempts printed: as a list with a cursor, and followed while they run."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest

from contracts import events as ev
from contracts.artifacts import Upload
from contracts.ids import log_id
from contracts.store.attempts import Attempt
from contracts.store.live import PIECE_BYTES, STORED, Piece
from services.ingest.handlers import logs
from tests.ingest.api import Api, running_api, settings_for
from tests.store.play import POOL, Play


def keep_log(api: Api, job_id: str, fence: int, text: bytes, folder: Path, tenant: str = "t_a") -> None:
    """Store a log as the worker does."""
    (folder / "log").write_bytes(text)
    upload = Upload(
        id=log_id(job_id, fence), pool=POOL, job_id=job_id, tenant_id=tenant, name="x.log", kind="log", variant="log",
        width=None, height=None, created_ms=1, expires_at_ms=time.time_ns() // 1_000_000 + 3_600_000,
    )  # fmt: skip
    api.service.context.shelf.put(upload, folder / "log")


class Events:
    """The events of one follower."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.ids: list[str] = []

    async def next(self) -> tuple[str, dict[str, object]]:
        """Return name and data of the next event; comments and `retry` are passed over."""
        async with asyncio.timeout(20):
            while True:
                fields = {}
                while line := (await self._response.content.readline()).decode().rstrip("\n"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                if "data" in fields:
                    self.ids += [fields["id"]] if "id" in fields else []
                    return fields.get("event", ""), orjson.loads(fields["data"])
                assert not self._response.content.at_eof()

    async def text_until_end(self) -> tuple[str, dict[str, object]]:
        """Return all text, and the data of the end."""
        text = ""
        while True:
            name, data = await self.next()
            if name == "end":
                return text, data
            assert name == "log"
            text += str(data["text"])


@asynccontextmanager
async def following(api: Api, job_id: str, **headers: str) -> AsyncIterator[Events]:
    sent = {"Authorization": f"Bearer {api.key}", "Accept": "text/event-stream", **headers}
    async with api.session.get(f"{api.url}/v1/jobs/{job_id}/logs", headers=sent) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        yield Events(response)


async def show(api: Api, job_id: str, fence: int, offset: int, data: bytes) -> None:
    await api.store.live.publish(POOL, Piece(job_id, fence, offset, data))


async def nobody_follows(api: Api) -> None:
    """Wait until all followers have been let go."""
    async with asyncio.timeout(20):
        while api.service._tails._following:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)


async def fails(play: Play, attempt: Attempt) -> None:
    error = ev.ErrorFacts(code="internal", retryable=False)
    tried = ev.JobAttemptFailed(error=error, attempt=1, will_retry=False)
    await play.store.attempts.emit(attempt, [tried, ev.JobFailed(error=error, attempts=1)], closes=True)


async def test_a_list_goes_on_from_its_cursor_through_all_attempts(api: Api, play: Play, tmp_path: Path) -> None:
    attempt = await play.running()
    keep_log(api, attempt.job_id, 1, "one\ntwo ä\r\n\nlast \xff".encode() + b"\xff", tmp_path)
    await play.completes(attempt)
    path = f"/v1/jobs/{attempt.job_id}/logs"

    first = await api.get(path + "?limit=2")
    rest = await api.get(path + f"?cursor={first.body['nextCursor']}")
    foreign = await api.get(path, key=await api.tenant("t_b"))
    odd = await api.get(path + "?cursor=x")

    assert [(line["offset"], line["text"]) for line in first.body["data"]] == [(0, "one"), (4, "two ä")]
    assert first.body["hasMore"] is True
    assert [(line["offset"], line["text"]) for line in rest.body["data"]] == [(12, ""), (13, "last ÿ\ufffd")]
    assert (rest.body["hasMore"], rest.body["nextCursor"]) == (False, None)
    assert (foreign.status, foreign.code) == (404, "job_not_found")
    assert (odd.status, odd.code) == (400, "bad_cursor")


async def test_a_running_job_is_read_from_what_is_live_and_its_cursor_goes_on(api: Api, play: Play) -> None:
    attempt = await play.running()
    path = f"/v1/jobs/{attempt.job_id}/logs"
    nothing = await api.get(path)
    await show(api, attempt.job_id, 1, 0, b"one\n")
    one = await api.get(path + f"?cursor={nothing.body['nextCursor']}")
    await show(api, attempt.job_id, 1, 4, b"two\n")
    two = await api.get(path + f"?cursor={one.body['nextCursor']}")

    assert nothing.body["data"] == []
    assert [line["text"] for line in one.body["data"]] == ["one"]
    assert [line["text"] for line in two.body["data"]] == ["two"]
    assert two.body["hasMore"] is False


async def test_following_shows_what_was_what_comes_and_the_end(api: Api, play: Play, tmp_path: Path) -> None:
    attempt = await play.running()
    await show(api, attempt.job_id, 1, 0, b"before\n")
    async with following(api, attempt.job_id) as events:
        assert await events.next() == ("log", {"fence": 1, "offset": 0, "text": "before\n"})
        await show(api, "job_" + "0" * 26 + "aa", 1, 0, b"of another job\n")
        await show(api, attempt.job_id, 1, 7, "wäh".encode())
        assert await events.next() == ("log", {"fence": 1, "offset": 7, "text": "wäh"})
        # The last words were never shown; they are in the stored log.
        keep_log(api, attempt.job_id, 1, "before\nwährend\nafter".encode(), tmp_path)
        await show(api, attempt.job_id, 1, STORED, b"")
        assert await events.next() == ("log", {"fence": 1, "offset": 11, "text": "rend\nafter"})
        await play.completes(attempt)
        assert await events.next() == ("end", {"reason": "terminal"})
        assert events.ids == ["1.7", "1.11", "1.21"]


async def test_coming_back_shows_each_byte_once_and_then_says_it_is_over(api: Api, play: Play, tmp_path: Path) -> None:
    attempt = await play.running()
    keep_log(api, attempt.job_id, 1, b"one two three", tmp_path)
    await play.completes(attempt)
    async with following(api, attempt.job_id, **{"Last-Event-ID": "1.4"}) as events:
        assert await events.text_until_end() == ("two three", {"reason": "terminal"})
        last = events.ids[-1]
    again = await api.get(
        f"/v1/jobs/{attempt.job_id}/logs", headers={"Accept": "text/event-stream", "Last-Event-ID": last}
    )
    assert again.status == 204


async def test_a_hole_is_told(api: Api, play: Play) -> None:
    attempt = await play.running()
    await show(api, attempt.job_id, 1, 100, b"late")
    async with following(api, attempt.job_id) as events:
        assert await events.next() == ("gap", {"fence": 1, "offset": 0, "bytes": 100})
        assert await events.next() == ("log", {"fence": 1, "offset": 100, "text": "late"})


async def test_an_attempt_that_left_no_log_does_not_hold_up_the_next(api: Api, play: Play, tmp_path: Path) -> None:
    attempt = await play.running()
    async with following(api, attempt.job_id) as events:
        await show(api, attempt.job_id, 1, 0, b"first, killed\n")
        assert (await events.next())[1]["text"] == "first, killed\n"
        queued = ev.JobQueued(reason="handed_back", attempt=0)
        await play.store.attempts.emit(attempt, [queued])
        second, event = play.starting(await play.offers(attempt.job_id, slot=1, fence=1))
        await play.store.attempts.start(second, event)
        await show(api, attempt.job_id, 2, 0, b"second\n")
        assert (await events.next())[1] == {"fence": 2, "offset": 0, "text": "second\n"}
        await fails(play, second)
        assert await events.next() == ("end", {"reason": "terminal"})


async def test_followers_are_let_go_when_the_process_ends(api: Api, play: Play) -> None:
    attempt = await play.running()
    async with following(api, attempt.job_id) as events:
        await show(api, attempt.job_id, 1, 0, b"x")
        await events.next()
        stopping = asyncio.create_task(api.service.stop())
        assert await events.next() == ("end", {"reason": "going_away"})
        await asyncio.wait_for(stopping, 20)


async def test_who_comes_to_follow_while_the_process_ends_is_let_go(api: Api, play: Play) -> None:
    attempt = await play.running()
    await api.service._tails.aclose()

    async with following(api, attempt.job_id) as events:
        assert await events.next() == ("end", {"reason": "going_away"})


async def test_the_live_stream_is_capped_and_goes_by_itself(api: Api, play: Play) -> None:
    attempt = await play.running()
    for number in range(1_500):
        await show(api, attempt.job_id, 1, number, b"x")
    assert await api.store.client.xlen("hr:{default}:live") < 700
    assert 0 < await api.store.client.ttl("hr:{default}:live") <= 3_600


async def test_a_tenant_follows_no_more_than_its_share(store_url: str, tmp_path: Path) -> None:
    settings = settings_for(store_url, tmp_path, ingest={"tenant_followers": 1})
    async with running_api(settings) as api:
        job_id = (await (await Play(api.store).open()).running()).job_id
        follow = {"Accept": "text/event-stream"}
        async with following(api, job_id):
            refused = await api.get(f"/v1/jobs/{job_id}/logs", headers=follow)
            assert (refused.status, refused.code) == (429, "quota_exceeded")
            assert refused.headers["retry-after"] == "10"
            assert refused.body["violated-policies"] == ["followers"]
            with api.service._tails.follow("t_b", POOL, job_id):  # the share of another tenant
                pass
        await show(api, job_id, 1, 0, b"x")  # who is gone is noticed when there is something to send
        await nobody_follows(api)


async def test_a_follower_that_does_not_read_is_cut_off(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Field case 78: one that never reads holds neither memory nor a place."""
    monkeypatch.setattr(logs, "WRITE_TIMEOUT_S", 0.3)
    job_id = (await play.running()).job_id
    head = f"GET /v1/jobs/{job_id}/logs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", api.service.port, limit=1024)
    writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    offset = 0
    async with asyncio.timeout(30):
        while api.service._tails._following:
            await show(api, job_id, 1, offset, b"x" * PIECE_BYTES)
            offset += PIECE_BYTES
    assert not (await asyncio.wait_for(reader.read(), 20)).endswith(b"0\r\n\r\n")  # not as if that had been all
    writer.close()

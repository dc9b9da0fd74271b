"""Following events: each once, across connections that break off and a server that restarts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from headrace import event_stream
from headrace.client import Client, Problem, Unreachable
from headrace.event_stream import follow_events
from tests.headrace.scripted import scripted

Serve = Callable[[list[bytes | int]], Awaitable[tuple[Client, list[str | None]]]]


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Start a server that answers with these streams one by one (a number: that status), the last again and again."""
    monkeypatch.setattr(event_stream, "FIRST_PAUSE_S", 0.001)
    async with AsyncExitStack() as stack:

        async def start(script: list[bytes | int]) -> tuple[Client, list[str | None]]:
            seen: list[str | None] = []

            async def answer(request: web.Request) -> web.Response:
                seen.append(request.headers.get("Last-Event-ID"))
                said = script.pop(0) if len(script) > 1 else script[0]
                if isinstance(said, int):
                    return web.json_response({"code": "x"}, status=said) if said != 204 else web.Response(status=204)
                return web.Response(body=said, content_type="text/event-stream")

            return await stack.enter_async_context(scripted(answer)), seen

        yield start


def log(place: str, text: str) -> bytes:
    return f'event: log\nid: {place}\ndata: {{"text":"{text}"}}\n\n'.encode()


END = b'event: end\ndata: {"reason":"terminal"}\n\n'
AWAY = b'event: end\ndata: {"reason":"going_away"}\n\n'


async def test_events_are_read_to_their_end(serve: Serve) -> None:
    client, seen = await serve([b"retry: 2000\n\n: hb\n\n" + log("1.3", "one") + log("1.6", "two") + END])
    events = [each async for each in follow_events(client, "/logs")]
    assert events == [
        ("log", {"text": "one"}, "1.3"), ("log", {"text": "two"}, "1.6"), ("end", {"reason": "terminal"}, ""),
    ]  # fmt: skip
    assert seen == [None]


async def test_a_stream_that_breaks_off_or_goes_away_is_taken_up_behind_the_last_event(serve: Serve) -> None:
    client, seen = await serve([log("1.3", "one"), 503, log("1.6", "two") + AWAY, END])
    events = [data.get("text") async for _, data, _ in follow_events(client, "/logs")]
    assert events == ["one", "two", None]
    assert seen == [None, "1.3", "1.3", "1.6"]


async def test_nothing_more_is_an_end_and_a_refusal_is_told(serve: Serve) -> None:
    client, _ = await serve([log("1.3", "one"), 204])
    assert [data["text"] async for _, data, _ in follow_events(client, "/logs")] == ["one"]
    client, _ = await serve([404])
    with pytest.raises(Problem):
        [each async for each in follow_events(client, "/logs")]


async def test_a_server_that_stays_away_is_given_up(serve: Serve) -> None:
    client, seen = await serve([b": hb\n\n"])
    with pytest.raises(Unreachable):
        [each async for each in follow_events(client, "/logs")]
    assert len(seen) == event_stream.TRIES

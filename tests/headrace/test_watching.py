"""Watching a job: asked for while it waits, told by its stream from then on."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import orjson
import pytest
from aiohttp import web

from headrace.client import Client, JsonObject
from headrace.watching import watch
from tests.headrace.scripted import scripted

Serve = Callable[[list[JsonObject], list[bytes]], Awaitable[tuple[Client, list[str]]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that shows these jobs one by one, the last again and again, and has these streams."""
    async with AsyncExitStack() as stack:

        async def start(jobs: list[JsonObject], streams: list[bytes]) -> tuple[Client, list[str]]:
            seen: list[str] = []

            async def answer(request: web.Request) -> web.Response:
                if request.path.endswith("/stream"):
                    seen.append(request.headers.get("Last-Event-ID", ""))
                    return web.Response(body=streams.pop(0), content_type="text/event-stream")
                seen.append("job")
                return web.json_response(jobs.pop(0) if len(jobs) > 1 else jobs[0])

            return await stack.enter_async_context(scripted(answer)), seen

        yield start


def job(status: str, sequence: int, position: int | None = None, progress: float = 0) -> JsonObject:
    queue = {"position": position, "etaSeconds": 1.5}
    return {"status": status, "sequence": sequence, "queue": queue, "progress": progress, "phase": None}


def event(name: str, place: str, **data: object) -> bytes:
    return f"event: {name}\nid: {place}\n".encode() + b"data: " + orjson.dumps(data) + b"\n\n"


END = b'event: end\ndata: {"reason":"terminal"}\n\n'
SLOW = b'event: end\ndata: {"reason":"slow_consumer"}\n\n'


async def test_a_job_is_asked_for_while_it_waits_and_then_told(serve: Serve) -> None:
    waiting = [job("queued", 1, 3), job("queued", 1, 3), job("queued", 1, 2), job("in_progress", 2)]
    stream = event("snapshot", "p2", job=job("in_progress", 2)) + event(
        "job.progress", "p3", sequence=3, data={"progress": 40, "phase": "denoising"}
    )
    rest = event("job.completed", "p4", sequence=4, data={}) + END
    client, seen = await serve([*waiting, job("completed", 4, progress=100)], [stream + SLOW, rest])

    states = [state async for state in watch(client, "job_1", limit_s=60)]

    assert [(state["status"], state["queue"]["position"], state["progress"]) for state in states] == [
        ("queued", 3, 0), ("queued", 2, 0), ("in_progress", None, 0), ("in_progress", None, 40),
        ("completed", None, 100),
    ]  # fmt: skip
    assert states[3]["phase"] == "denoising"
    assert seen == ["job"] * 4 + ["", "p3", "job"]  # progress costs no request


async def test_a_job_that_has_ended_needs_no_stream(serve: Serve) -> None:
    client, seen = await serve([job("failed", 5)], [])
    assert [state["status"] async for state in watch(client, "job_1", limit_s=60)] == ["failed"]
    assert seen == ["job"]


async def test_watching_ends_at_its_limit(serve: Serve) -> None:
    client, _ = await serve([job("queued", 1)], [])
    with pytest.raises(TimeoutError):
        async for _ in watch(client, "job_1", limit_s=0.3):
            pass

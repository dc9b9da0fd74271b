"""The HTTP client against a scripted server: what it repeats, what it never repeats."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from headrace.client import Client, Problem, Unreachable
from tests.headrace.scripted import scripted

Script = list[web.Response]
Serve = Callable[[Script], Awaitable[tuple[Client, list[web.Request]]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that gives the scripted answers one by one, the last one again and again."""
    async with AsyncExitStack() as stack:

        async def start(script: Script) -> tuple[Client, list[web.Request]]:
            seen: list[web.Request] = []

            async def answer(request: web.Request) -> web.Response:
                await request.read()
                seen.append(request)
                said = script.pop(0) if len(script) > 1 else script[0]
                headers = {name: value for name, value in said.headers.items() if name != "Content-Type"}
                return web.Response(status=said.status, text=said.text, headers=headers)

            return await stack.enter_async_context(scripted(answer)), seen

        yield start


def problem(status: int, code: str, **headers: str) -> web.Response:
    return web.json_response({"code": code, "detail": "why"}, status=status, headers=headers)


async def test_a_submit_is_repeated_with_the_same_key_while_the_server_is_away(serve: Serve) -> None:
    client, seen = await serve([problem(503, "log_unavailable"), web.json_response({"id": "job_1"}, status=201)])

    answer = await client.submit({"prompt": "x"})

    assert answer.body == {"id": "job_1"}
    assert len(seen) == 2
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 1


async def test_other_writes_are_sent_once(serve: Serve) -> None:
    client, seen = await serve([problem(503, "log_unavailable")])

    with pytest.raises(Problem):
        await client.post("/admin/v1/tenants", {"id": "t_a"})

    assert len(seen) == 1


async def test_a_refusal_is_not_repeated(serve: Serve) -> None:
    client, seen = await serve([problem(429, "quota_exceeded", **{"Retry-After": "7"})])

    with pytest.raises(Problem) as caught:
        await client.submit({"prompt": "x"})

    assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (429, "quota_exceeded", 7.0)
    assert len(seen) == 1


async def test_a_server_that_stays_away_ends_in_its_last_answer(serve: Serve) -> None:
    client, seen = await serve([problem(503, "log_unavailable")])

    with pytest.raises(Problem, match="why"):
        await client.get("/v1/jobs")

    assert 1 < len(seen) <= 4


async def test_nobody_there_is_unreachable() -> None:
    async with Client("http://127.0.0.1:1", "") as client:
        with pytest.raises(Unreachable):
            await client.try_get("/readyz")


async def test_an_error_page_of_a_proxy_is_a_problem_too(serve: Serve) -> None:
    client, _ = await serve([web.Response(status=502, text="<html>bad gateway</html>")])

    with pytest.raises(Problem, match="bad gateway"):
        await client.post("/v1/jobs/x/cancel")


async def test_a_list_is_read_page_by_page_up_to_the_limit(serve: Serve) -> None:
    def page(numbers: range, cursor: str | None) -> web.Response:
        rows = [{"n": number} for number in numbers]
        return web.json_response({"data": rows, "hasMore": cursor is not None, "nextCursor": cursor})

    client, seen = await serve([page(range(100), "c1"), page(range(100, 120), "c2")])

    found = await client.pages("/v1/jobs", [("status", "queued"), ("status", "failed")], limit=120)

    assert [row["n"] for row in found["data"]] == list(range(120))
    assert found["hasMore"] is True
    assert [request.query.get("cursor") for request in seen] == [None, "c1"]
    assert seen[1].query.getall("status") == ["queued", "failed"]


async def test_the_key_is_not_sent_to_another_server(serve: Serve) -> None:
    client, seen = await serve([web.Response(text="bytes")])

    with pytest.raises(Unreachable, match="another server"):
        await client.download("http://elsewhere.example/v1/artifacts/a/content")

    assert await client.download(f"{client.url}/v1/artifacts/a/content") == b"bytes"
    assert len(seen) == 1

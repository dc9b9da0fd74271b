"""The edge on a real socket of a real process: nothing that a client sends may hurt the others."""

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.ingest.test_framing import AMBIGUOUS

JSON = b"Content-Type: application/json"
BODY = b'{"a":1}'
MIB = 1 << 20


def post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"POST /echo HTTP/1.1", b"Host: a", JSON, *lines, b"", b""]) + body


ORDINARY = post(b"Content-Length: 7", body=BODY)


def is_problem(answer: tuple[int, dict[str, str], dict[str, Any]], status: int, code: str) -> bool:
    found, headers, body = answer
    assert (found, body["status"], body["code"]) == (status, status, code)
    assert headers["content-type"] == "application/problem+json"
    return True


@pytest.mark.parametrize("extensions", [True, False], ids=["C parser", "Python parser"])
async def test_every_ambiguous_border_is_400_and_closed_by_both_parsers(
    edge_server: Callable[..., Any], connect: Callable[..., Any], extensions: bool
) -> None:
    """Field case 6: both lengths, two lengths, bare CR and LF, chunk extension, trailers, folded lines."""
    server = edge_server(extensions=extensions)

    for name, raw in AMBIGUOUS.items():
        async with connect(server.port) as raw_connection:
            await raw_connection.send(
                raw.replace(b"POST / ", b"POST /echo ").replace(b"Host: a", b"Host: a\r\n" + JSON, 1)
            )
            status, headers, _ = await raw_connection.answer()

            assert status in (400, 417, 431), name
            assert headers["content-type"] == "application/problem+json", name
            assert await raw_connection.closed(), name
    assert server.slow_parser is not extensions
    assert ("http_parser_is_pure_python" in server.log.read_text()) is not extensions
    assert "Traceback" not in server.log.read_text()


async def test_a_request_smuggled_behind_a_chunked_body_is_never_answered(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Field case 6: what follows a trailer is not taken for a second request."""
    server = edge_server()
    smuggled = b"2\r\n{}\r\n0\r\nGET /fast HTTP/1.1\r\nHost: a\r\n\r\n"

    async with connect(server.port) as raw:
        await raw.send(post(b"Transfer-Encoding: chunked", body=smuggled))

        assert is_problem(await raw.answer(), 400, "bad_request")
        assert await raw.closed()


async def test_bodies_cannot_pass_the_limit_in_any_disguise(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Field case 1: chunked 200 MB, 1 GB declared, endless multipart, gzip; memory stays flat."""
    server = edge_server()
    async with connect(server.port) as raw:
        await raw.send(ORDINARY)
        await raw.answer()
    before = server.rss_bytes()

    async with connect(server.port) as raw:
        sender = asyncio.create_task(_send_chunks(raw, 200 * MIB))
        assert is_problem(await raw.answer(), 413, "payload_too_large")
        assert await raw.closed()
        await sender
    async with connect(server.port) as raw:
        await raw.send(post(b"Content-Length: 1073741824", body=b"0123456789"))
        assert is_problem(await raw.answer(), 413, "payload_too_large")
        assert await raw.closed()
    async with connect(server.port) as raw:
        await raw.send(post(b"Content-Length: 1048577", b"Expect: 100-continue"))
        assert is_problem(await raw.answer(), 413, "payload_too_large")
    for media_type in (b"multipart/form-data", b"text/plain", b"application/json; charset=latin-1"):
        async with connect(server.port) as raw:
            await raw.send(post(b"Content-Length: 900", body=b"--x\r\n" * 180).replace(b"application/json", media_type))
            assert is_problem(await raw.answer(), 415, "unsupported_media_type")
    async with connect(server.port) as raw:
        await raw.send(post(b"Content-Encoding: gzip", b"Content-Length: 2", body=b"\x1f\x8b"))
        assert is_problem(await raw.answer(), 415, "unsupported_media_type")

    assert server.rss_bytes() - before < 50 * MIB


async def test_a_body_that_stops_arriving_ends_with_408(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Field case 1: a body shorter than declared holds nothing for ever."""
    server = edge_server(grace_s=0.3)

    async with connect(server.port) as raw:
        await raw.send(post(b"Content-Length: 1000", body=BODY))

        assert is_problem(await raw.answer(), 408, "request_timeout")
        assert await raw.closed()


async def test_five_hundred_slow_senders_do_not_slow_the_others(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Field case 1: 500 connections with a byte now and then, in the head and in the body."""
    server, quiet = edge_server(grace_s=2, head_timeout_s=2), edge_server()
    async with connect(server.port) as raw:
        await raw.send(ORDINARY)
        await raw.answer()
    before = server.rss_bytes()

    head_drips = [asyncio.create_task(_drip(connect, server.port, b"POST /echo HTTP/1.1\r\nX: ")) for _ in range(250)]
    body_drips = [asyncio.create_task(_drip(connect, server.port, post(b"Content-Length: 1000"))) for _ in range(250)]
    answers_s, quiet_s = [], []  # at the same time, on the same machine, by the same client
    while not all(task.done() for task in head_drips + body_drips):
        answers_s.append(await _time_to_answer(connect, server.port))
        quiet_s.append(await _time_to_answer(connect, quiet.port))

    statuses = [task.result() for task in head_drips + body_drips]
    assert set(statuses) <= {408, RESET}
    assert statuses.count(408) > 400
    assert statistics.median(answers_s) < max(0.2, 20 * statistics.median(quiet_s))  # the machine may be busy, too
    assert server.rss_bytes() - before < 50 * MIB


async def test_a_full_house_is_told_at_once(edge_server: Callable[..., Any], connect: Callable[..., Any]) -> None:
    server = edge_server(max_connections=2)

    async with connect(server.port) as first, connect(server.port) as second:
        for raw in (first, second):
            await raw.send(ORDINARY)
            await raw.answer()
        async with connect(server.port) as third:
            assert is_problem(await third.answer(), 503, "overloaded")
            assert await third.closed()
        await first.send(ORDINARY)
        assert (await first.answer())[0] == 200


ERRORS = (
    (b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 404, "not_found"),
    (b"PUT /echo HTTP/1.1\r\nHost: a\r\n\r\n", 405, "method_not_allowed"),
    (b"GET /fail HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n", 500, "internal"),
    (b"GET /closed HTTP/1.1\r\nHost: a\r\n\r\n", 401, "unauthenticated"),
    (post(b"Content-Length: 1", body=b"{"), 400, "malformed_json"),
    (b"hello\r\n\r\n", 400, "bad_request"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
)


async def test_every_error_is_a_problem_without_a_trace_of_the_inside(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    """Field case 2: errors are JSON problems, whoever found them."""
    server = edge_server()

    for raw_request, status, code in ERRORS:
        async with connect(server.port) as raw:
            await raw.send(raw_request)
            answer = await raw.answer()

        assert is_problem(answer, status, code)
        assert answer[2]["requestId"] == answer[1]["x-request-id"]
        assert "secret" not in json.dumps(answer[2])
        assert "Traceback" not in json.dumps(answer[2])


async def test_sigterm_lets_a_half_received_request_finish(
    edge_server: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    server = edge_server(grace_s=10)

    async with connect(server.port) as half, connect(server.port) as idle:
        await idle.send(ORDINARY)
        await idle.answer()
        await half.send(post(b"Content-Length: 7", b"Expect: 100-continue"))
        await half.reader.readuntil(b"100 Continue\r\n\r\n")
        await half.send(BODY[:3])
        server.process.terminate()
        assert await idle.closed()
        await half.send(BODY[3:])

        status, headers, _ = await half.answer()

    assert (status, headers["connection"]) == (200, "close")
    assert await asyncio.to_thread(server.process.wait, 20) == 0


async def _send_chunks(raw: Any, total_bytes: int) -> None:
    await raw.send(post(b"Transfer-Encoding: chunked"))
    part = b"%x\r\n" % 65_536 + b"x" * 65_536 + b"\r\n"
    for _ in range(total_bytes // 65_536):
        if raw.writer.is_closing():
            return
        await raw.send(part)


async def _time_to_answer(connect: Callable[..., Any], port: int) -> float:
    started_s = time.monotonic()
    async with connect(port) as raw:
        await raw.send(ORDINARY)
        assert (await raw.answer())[0] == 200
    return time.monotonic() - started_s


RESET = 0  # the answer was overtaken by the end of the connection, which a client may see as well


async def _drip(connect: Callable[..., Any], port: int, start: bytes) -> int:
    """Send a byte every 50 ms until there is an answer; return its status."""
    async with connect(port) as raw:
        await raw.send(start)
        answer = asyncio.create_task(raw.answer())
        while not (await asyncio.wait({answer}, timeout=0.05))[0]:
            await raw.send(b"x")
        try:
            return int((await answer)[0])
        except (ConnectionError, asyncio.IncompleteReadError):
            return RESET

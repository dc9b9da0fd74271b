"""Connections that are kept for a moment: for one receiver and one place, and never one that says too much."""

import asyncio

import pytest

from contracts.outbound import connection as connections
from contracts.outbound.exchange import encode_request, exchange
from contracts.outbound.guard import Outbound
from contracts.outbound.kept import KeptConnections
from contracts.webhook_target import place_of
from tests.notifier.receiver import Behaviour, Receiver, answer, reset

KEPT = answer(200, {"Connection": "keep-alive"}, b"ok")


async def send(kept: KeptConnections, receiver: str, url: str) -> int:
    place = place_of(url)
    async with exchange(
        Outbound(), place, "loopback", encode_request("POST", place, {}, keep=True), kept, receiver
    ) as it:
        head = await it.head()
        while await it.read(100):
            pass
    return head.status


def saying_more(more: bytes) -> Behaviour:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok" + more)

    return behave


async def test_a_connection_is_used_again_by_its_receiver_only() -> None:
    kept = KeptConnections(60)
    async with Receiver([KEPT], keeps=True) as server, Receiver([KEPT], keeps=True) as elsewhere:
        for receiver in ("a", "a", "b", "a"):
            assert await send(kept, receiver, server.url()) == 200
        assert server.connections == 2
        assert await send(kept, "a", elsewhere.url()) == 200, "another place of the same receiver"
        assert elsewhere.connections == 1
        kept.close()
        await server.wait_for(lambda: server.open_connections == 0)


async def test_what_idles_is_closed() -> None:
    kept = KeptConnections(0.05)
    async with Receiver([KEPT], keeps=True) as server:
        await send(kept, "a", server.url())
        await server.wait_for(lambda: server.open_connections == 0)
        await send(kept, "a", server.url())
        assert server.connections == 2
        kept.close()


@pytest.mark.parametrize(
    "first",
    [answer(200), answer(200, {"Connection": "close"}), saying_more(b"HTTP/1.1 204 No\r\n\r\n"), saying_more(b"x")],
    ids=["says nothing", "close", "an answer too many", "a byte too many"],
)  # fmt: skip
async def test_who_does_not_say_that_he_goes_on_or_says_too_much_is_connected_to_anew(first: Behaviour) -> None:
    """Field case 100; and an answer that was sent ahead must not be taken for that to the next request."""
    kept = KeptConnections(60)
    async with Receiver([first, answer(503)], keeps=True) as server:
        assert [await send(kept, "a", server.url()) for _ in range(2)] == [200, 503]
        assert server.connections == 2


async def test_an_answer_that_comes_ahead_while_nobody_asked_ends_the_connection() -> None:
    kept, later = KeptConnections(60), asyncio.Event()

    async def ahead(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n")
        await later.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with Receiver([ahead, answer(500)], keeps=True) as server:
        assert await send(kept, "a", server.url()) == 200
        later.set()
        await server.wait_for(lambda: server.open_connections == 0)
        assert await send(kept, "a", server.url()) == 500


async def test_a_kept_connection_that_was_reset_fails_once_and_is_not_sent_on_again() -> None:
    kept = KeptConnections(60)
    async with Receiver([KEPT, reset, KEPT], keeps=True) as server:
        assert await send(kept, "a", server.url()) == 200
        with pytest.raises(OSError):
            await send(kept, "a", server.url())
        assert await send(kept, "a", server.url()) == 200
        assert len(server.requests) <= 3


async def test_after_so_many_requests_the_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUESTS_MAX", 3)
    kept = KeptConnections(60)
    async with Receiver([KEPT], keeps=True) as server:
        for _ in range(7):
            await send(kept, "a", server.url())
        assert server.connections == 3
        kept.close()

"""The connection under the batcher and the readers: a reply belongs to its command, whatever happened before."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from contracts.store.channel import Channel
from contracts.store.clients import command_client
from tests.servers import Server

LIMIT_S = 20.0


async def open_channel(server: Server) -> AsyncIterator[Channel]:
    client = command_client(server.url)
    channel = Channel(client.connection_pool)
    yield channel
    await channel.aclose()
    await client.aclose()


@pytest.fixture
async def channel(any_server: Server) -> AsyncIterator[Channel]:
    async for opened in open_channel(any_server):
        yield opened


@pytest.fixture
async def own_channel(own_server: Server) -> AsyncIterator[Channel]:
    async for opened in open_channel(own_server):
        yield opened


async def echo(channel: Channel, text: str, limit_s: float = LIMIT_S) -> object:
    (reply,) = await channel.exchange([("ECHO", text)], limit_s)
    return reply


async def test_replies_come_in_the_order_of_the_commands_and_an_error_takes_its_place(channel: Channel) -> None:
    replies = await channel.exchange([("ECHO", "a"), ("NONSENSE",), ("SET", b"k", 7), ("GET", "k")], LIMIT_S)

    assert replies[0] == b"a"
    assert isinstance(replies[1], ResponseError)
    assert replies[2:] == [b"OK", b"7"]


async def test_exchanges_made_at_once_do_not_take_each_others_replies(channel: Channel) -> None:
    texts = [f"{number}-" * 5_000 for number in range(50)]

    replies = await asyncio.gather(*(echo(channel, text) for text in texts))

    assert replies == [text.encode() for text in texts]


async def test_a_reply_that_comes_too_late_is_not_given_to_the_next_command(
    own_server: Server, own_channel: Channel
) -> None:
    assert await echo(own_channel, "before") == b"before"
    own_server.send(signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await echo(own_channel, "late" * 1_000_000, limit_s=0.05)
    own_server.send(signal.SIGCONT)

    assert await echo(own_channel, "next") == b"next"


async def blocked_s(channel: Channel, limit_s: float) -> float:
    """Return after how many seconds an exchange without a reply is given up."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    with pytest.raises(TimeoutError):
        await channel.exchange([("BLPOP", "nothing", 0)], limit_s)
    return loop.time() - begun_s


@pytest.mark.parametrize("first_s", [LIMIT_S, 0.3])
async def test_each_exchange_has_its_own_limit_although_they_share_a_timer(channel: Channel, first_s: float) -> None:
    await echo(channel, "answered", limit_s=first_s)  # its limit lies beyond that of the next one, or before

    assert 0.5 <= await blocked_s(channel, 0.5) < 10.0


async def test_a_cancelled_exchange_leaves_nothing_behind(channel: Channel) -> None:
    blocked = asyncio.create_task(channel.exchange([("BLPOP", "nothing", 0)], LIMIT_S))
    await asyncio.sleep(0)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked

    assert await echo(channel, "next") == b"next"


async def test_a_connection_that_is_lost_under_an_exchange_is_an_error_and_the_next_one_is_new(
    own_server: Server, own_channel: Channel
) -> None:
    blocked = asyncio.create_task(own_channel.exchange([("ECHO", "a"), ("BLPOP", "nothing", 0)], LIMIT_S))
    await blocked_client_of(own_server)
    own_server.stop(signal.SIGKILL)
    with pytest.raises(ConnectionError):
        await blocked
    own_server.start()

    assert await echo(own_channel, "next") == b"next"


async def test_a_connection_that_was_lost_while_idle_costs_the_next_exchange_nothing(
    own_server: Server, own_channel: Channel
) -> None:
    assert await echo(own_channel, "before") == b"before"
    await asyncio.to_thread(own_server.stop, signal.SIGKILL)  # the loop goes on and hears of it
    await asyncio.to_thread(own_server.start)

    assert await echo(own_channel, "after") == b"after"


async def blocked_client_of(server: Server) -> None:
    """Return when a client waits in a blocking command."""
    client = command_client(server.url)
    for _ in range(5_000):
        if int((await client.info("clients"))["blocked_clients"]) > 0:
            break
    await client.aclose()

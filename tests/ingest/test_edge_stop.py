"""The stop of the edge, at every turn of the loop on a request's way: whose handler began has its whole answer."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop
from aiohttp import web

from services.ingest.app import make_app
from services.ingest.edge.body import BodyLimits, BodyRoom, read_body
from services.ingest.edge.middleware import EdgeState
from services.ingest.edge.server import ConnectionLimits, GuardedRunner
from services.ingest.metrics import IngestMetrics
from services.ingest.routes import Route
from services.ingest.tenancy import Caller

TURNS = range(16)  # a request that is all there has had its answer long before the last of them
WORK_TURNS = 3
BODY = b'{"a":1}'
DRAIN_S = 5
LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def request(name: str) -> bytes:
    head = f"POST /{name} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    return head.encode() + BODY


class Edge:
    """A server on a port, whose handler writes down what it began, and its clients, which do not wait."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._state = EdgeState("test", IngestMetrics())
        self._limits, self._room = BodyLimits(), BodyRoom()
        self._clients: list[socket.socket] = []

    async def open(self) -> None:
        app = make_app((Route("POST", "/{name}", self._answer, "Answer."),), self._state, self._nobody, 1_024)
        self._runner = GuardedRunner(app, ConnectionLimits(), self._state.mint_request_id)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    def connect(self) -> socket.socket:
        """Connect at once: the kernel accepts it before the server does."""
        client = socket.create_connection(self._runner.addresses[0][:2])
        client.setblocking(False)
        self._clients.append(client)
        return client

    async def stop(self) -> None:
        """Stop in the order of the service."""
        self._state.is_draining = True
        await self._runner.drain(DRAIN_S)
        await self._runner.cleanup()

    def answers(self) -> Iterator[bytes]:
        """Return what each client has received, once the loop of the server has ended."""
        for client in self._clients:
            received = b""
            # asyncio 3.11 may leave a connection that it was accepting just then open until the process ends.
            with client, contextlib.suppress(ConnectionResetError, BlockingIOError):
                while part := client.recv(65_536):
                    received += part
            yield received

    async def _answer(self, incoming: web.Request) -> web.StreamResponse:
        with self._room.share() as share:
            await read_body(incoming, self._limits, share)
        name = incoming.match_info["name"]
        self.begun.append(name)
        await turns(WORK_TURNS)
        return web.json_response({"name": name, "is_over": True}, status=201)

    async def _nobody(self, _: web.Request) -> Caller:
        raise NotImplementedError


async def turns(count: int) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


@LOOPS
@pytest.mark.parametrize("before", TURNS)
def test_what_was_begun_is_answered_whenever_the_stop_comes(make_loop: Loop, before: int) -> None:
    """A first request, one on a connection that was used before, and one whose body comes while the server stops."""

    async def story() -> Edge:
        edge = Edge()
        await edge.open()
        used, half = edge.connect(), edge.connect()
        used.send(request("before"))
        await asyncio.get_running_loop().sock_recv(used, 65_536)
        half.send(request("half")[:-4])
        await turns(8)

        edge.connect().send(request("first"))
        used.send(request("again"))
        await turns(before)
        stopping = asyncio.create_task(edge.stop())
        await turns(4)
        half.send(request("half")[-4:])
        async with asyncio.timeout(DRAIN_S):
            await stopping
        return edge

    with asyncio.Runner(loop_factory=make_loop) as runner:
        edge = runner.run(story())

    answers = list(edge.answers())
    assert "half" in edge.begun
    for name in edge.begun[1:]:
        (answer,) = (each for each in answers if f'"{name}"'.encode() in each)
        assert (answer[:13], answer[-1:]) == (b"HTTP/1.1 201 ", b"}")

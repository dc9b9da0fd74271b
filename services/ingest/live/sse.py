"""Server-sent events: the streams as a browser's EventSource reads them.

Promises: something is sent at least every HEARTBEAT_S; a reader that takes nothing for WRITE_TIMEOUT_S, or on Linux for
UNACKNOWLEDGED_S, is cut off, and so is one that was unplugged, counted from the beat that it did not acknowledge; a
stream whose key was revoked ends within a beat.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from aiohttp import web

from contracts.errors import HeadraceError
from services.ingest.context import Context
from services.ingest.edge.headers import only_header
from services.ingest.edge.middleware import REQUEST_ID, stamp
from services.ingest.edge.problems import Problem
from services.ingest.handlers.read import JobReader
from services.ingest.live import messages
from services.ingest.live.access import check_origin, may_see
from services.ingest.live.hub import Hub
from services.ingest.live.job_stream import JobStream
from services.ingest.live.log_stream import LogStream
from services.ingest.live.messages import Message
from services.ingest.live.query import TENANT_NAMES, read_wanted
from services.ingest.live.tenant_audience import TenantAudience
from services.ingest.tenancy import Caller

WRITE_TIMEOUT_S = 30.0
UNACKNOWLEDGED_S = 10.0  # so that a beat, this and a look are within two beats
SEND_BUFFER_BYTES = 64 << 10
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-store",
    "X-Accel-Buffering": "no",
}


class StreamHandlers:
    """`/v1/jobs/{id}/stream` and `/v1/stream`. `is_valid` tells whether a caller's key still counts."""

    def __init__(self, context: Context, reader: JobReader, hub: Hub, is_valid: Callable[[Caller], bool]) -> None:
        self._context, self._reader, self._hub, self._is_valid = context, reader, hub, is_valid

    async def job(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Follow one job."""
        wanted = read_wanted(request.query, only_header(request, "Last-Event-ID"))
        check_origin(request, self._context.settings.public_url)
        shown = await may_see(self._reader, caller, request.match_info["id"])
        feed = self._hub.feed(shown.meta.name)
        with self._hub.stream(caller.key_id, "job"), feed.follow(shown.state.id) as listener:
            stream = JobStream(self._context, self._reader, feed, listener, wanted)
            if not await stream.begin(shown):
                return web.Response(status=204)  # the one answer after which a browser does not come back
            self._hub.figures.begun("job", is_resumed=wanted.after is not None)
            return await self.send(request, caller, stream.messages(), "job")

    async def tenant(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Follow all jobs of the tenant."""
        wanted = read_wanted(request.query, only_header(request, "Last-Event-ID"), TENANT_NAMES)
        check_origin(request, self._context.settings.public_url)
        audience = TenantAudience(self._context, self._reader, self._hub, caller, wanted)
        with self._hub.stream(caller.key_id, "tenant"):
            stream = LogStream(self._context, self._hub, audience, wanted)
            await stream.begin()
            self._hub.figures.begun("tenant", is_resumed=wanted.after is not None)
            return await self.send(request, caller, stream.messages(), "tenant")

    async def send(
        self, request: web.Request, caller: Caller, told: AsyncGenerator[Message, None], kind: str
    ) -> web.StreamResponse:  # fmt: skip
        """Answer with what is told, up to its end; `kind` of stream, for the metrics."""
        response = web.StreamResponse(headers=_HEADERS)
        stamp(response, request[REQUEST_ID])
        async with aclosing(told):
            await response.prepare(request)
            if request.method == "HEAD":
                return response
            bound_socket(request.transport)
            try:
                with self._hub.while_connected(lambda: _is_lost(request)):
                    await self._write(response, caller, told, kind)
            except (TimeoutError, ConnectionError, HeadraceError, Problem):  # gone, does not read, or the store is away
                if request.transport is not None:
                    request.transport.abort()  # what it did not take would wait in memory for as long as it likes
        return response

    async def _write(
        self, response: web.StreamResponse, caller: Caller, told: AsyncGenerator[Message, None], kind: str
    ) -> None:  # fmt: skip
        await response.write(messages.RETRY)
        async for message in told:
            if not self._is_valid(caller):
                message = messages.end("unauthenticated")  # revoked, or a token's time is over
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(messages.as_sse(message))
            self._hub.figures.told(kind, message, self._context.now_ms())
            if message.kind == "end":
                return


def _is_lost(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def bound_socket(transport: asyncio.BaseTransport | None) -> None:
    """Bound what the kernel holds for a peer: megabytes for each that does not read, and one that was unplugged.

    A peer that acknowledges nothing any more is given up, as it may never say so.
    """
    connection = None if transport is None else transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if connection is None or connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if option is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, int(UNACKNOWLEDGED_S * 1000))

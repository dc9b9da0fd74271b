"""The server side of one connection, hardened: what aiohttp leaves open is bounded here.

Promises: a head arrives within `head_timeout_s` or the connection ends with 408; ambiguous framing ends
with 400 before a handler hears of it; bytes that are no HTTP get a problem document, never a stack trace.
Does not bound bodies (`body.py`): only a handler knows their limit.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from contracts.telemetry import Logger
from services.ingest.edge.answers import problem_response
from services.ingest.edge.framing import BadFraming, RequestFraming
from services.ingest.edge.problems import Problem, code_for_status

if TYPE_CHECKING:
    from services.ingest.edge.server import GuardedServer

log: Logger = structlog.get_logger(service="ingest")


class FramingError(BadHttpMessage):
    """BadFraming in the tree of aiohttp's parser, so that the connection takes its usual way out."""

    def __init__(self, fault: BadFraming) -> None:
        super().__init__(fault.message)
        self.code = fault.status


class StrictParser:
    """aiohttp's parser behind our own reading of the framing; nothing reaches it that we cannot delimit."""

    def __init__(self, parser: Any, framing: RequestFraming) -> None:
        self._parser = parser
        self._framing = framing
        self._payload: Any = None
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> tuple[Sequence[Any], bool, bytes]:
        """Check, then parse. A fault inside a body goes to its reader, any other ends the connection."""
        if self._is_lost:
            return (), False, b""
        try:
            self._framing.feed(data)
        except BadFraming as fault:
            self._is_lost = True
            if self._payload is None or self._payload.is_eof():
                raise FramingError(fault) from None
            self._payload.set_exception(web.RequestPayloadError(fault.message))
            self._payload.feed_eof()  # nothing more can come, so nobody lingers for it
            return (), False, b""
        messages, is_upgraded, tail = self._parser.feed_data(data)
        if messages:
            self._payload = messages[-1][1]
        return messages, is_upgraded, tail


class GuardedProtocol(RequestHandler):
    """One connection."""

    __slots__ = ("_framing", "_head_timer", "_is_over", "_server")

    def __init__(self, server: "GuardedServer", **options: Any) -> None:
        super().__init__(server, loop=server.loop, **options)
        self._server = server
        self._framing = RequestFraming()
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._parser = StrictParser(self._parser, self._framing)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.open.add(self)
        super().connection_made(transport)
        if self._server.is_draining:  # accepted just before the socket that listens was closed
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        super().data_received(data)
        if not self._framing.mid_head:
            self._stop_head_timer()
        elif self._head_timer is None:
            # One deadline for the whole head: a byte a second must not buy another second each.
            self._head_timer = self._loop.call_later(self._server.limits.head_timeout_s, self._give_up_on_head)

    def end_when_idle(self) -> None:
        """Close now if nothing is under way; a request that is gets its answer, with `Connection: close`."""
        if self._framing.mid_body:
            return  # aiohttp drops all input after close(), so the rest of this body would never arrive
        if self._is_idle:
            self.force_close()
        else:
            self.close()

    @property
    def _is_idle(self) -> bool:
        """Whether every request that was read has had its answer.

        Asks whether the next one is waited for: for some turns of the loop aiohttp shows a request that it has read
        neither among its messages nor as the current one, and then the job would be made and nobody told.
        """
        return self._request_count == 0 or (self._waiter is not None and not self._waiter.done())

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what no handler could: bytes that are no request, or a failure outside all middlewares."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; a second one would be read as part of it")
        if isinstance(exc, HttpProcessingError):
            status = exc.code
        else:
            log.error("request_failed_outside_handlers", exc_info=exc)
        detail = exc.message if isinstance(exc, FramingError) else ""
        problem = Problem(code_for_status(status), detail)
        response = problem_response(problem, "", self._server.mint_request_id())
        response.force_close()
        return response

    def _give_up_on_head(self) -> None:
        self._head_timer = None
        if self.transport is None:
            return
        # Bytes that meet a closed socket are answered with a reset, which would overtake our answer: so the socket is
        # half closed first, and what still comes is dropped for a moment.
        self._is_over = True
        self.transport.write(self._server.head_timeout_answer)
        self.transport.write_eof()
        self._head_timer = self._loop.call_later(self._server.limits.linger_s, self.force_close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

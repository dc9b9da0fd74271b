"""All connections of the process: how many, how long they may idle, how they end at shutdown.

Promises: more than `max_connections` are answered 503 at once and closed; `drain` ends idle connections and
waits for the others, so that a request whose body is still arriving is answered and not cut.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import structlog
from aiohttp import web

from contracts.telemetry import Logger
from services.ingest.edge.answers import raw_answer
from services.ingest.edge.problems import Problem
from services.ingest.edge.protocol import GuardedProtocol

log: Logger = structlog.get_logger(service="ingest")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of connections. Bodies are bounded in `body.py`."""

    max_connections: int = 4_096
    head_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    # After a refused body the rest is dropped for a moment, so that a reset does not overtake the answer.
    linger_s: float = 2.0
    read_buffer_bytes: int = 16_384


class FullProtocol(asyncio.Protocol):
    """A connection there is no room for: one answer, then the end."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        out = cast(asyncio.Transport, transport)
        out.write(self._answer)
        out.close()


class GuardedServer(web.Server):
    """Makes the protocol of each connection and counts them."""

    def __init__(self, plain: web.Server, limits: ConnectionLimits, mint_request_id: Callable[[], str]) -> None:
        super().__init__(plain.request_handler, request_factory=plain.request_factory)
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.mint_request_id = mint_request_id
        self.open: set[GuardedProtocol] = set()
        self.is_draining = False
        self.head_timeout_answer = raw_answer(Problem("request_timeout", "The head did not arrive in time"))
        self._full_answer = raw_answer(Problem("overloaded", "Too many connections"))
        self._is_empty = asyncio.Event()

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        if len(self.open) >= self.limits.max_connections:
            return FullProtocol(self._full_answer)
        return GuardedProtocol(
            self,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self.limits.idle_timeout_s,
            lingering_time=self.limits.linger_s,
            read_bufsize=self.limits.read_buffer_bytes,
        )

    def forget(self, connection: GuardedProtocol) -> None:
        """Take a closed connection off the count."""
        self.open.discard(connection)
        if not self.open:
            self._is_empty.set()

    async def drain(self, timeout_s: float) -> None:
        """End idle connections and wait, at most `timeout_s`, until the others have had their answers."""
        self.is_draining = True
        self._is_empty.clear()
        for connection in tuple(self.open):
            connection.end_when_idle()
        if not self.open:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            log.warning("connections_cut_at_shutdown", count=len(self.open))


class GuardedRunner(web.AppRunner):
    """aiohttp's runner with the guarded server in place of its own."""

    __slots__ = ("_limits", "_mint_request_id")

    def __init__(self, app: web.Application, limits: ConnectionLimits, mint_request_id: Callable[[], str]) -> None:
        super().__init__(app, handle_signals=False, access_log=None)
        self._limits = limits
        self._mint_request_id = mint_request_id

    async def _make_server(self) -> web.Server:
        return GuardedServer(await super()._make_server(), self._limits, self._mint_request_id)

    @property
    def open_count(self) -> int:
        """How many connections are open."""
        return len(self.server.open) if isinstance(self.server, GuardedServer) else 0

    async def drain(self, timeout_s: float) -> None:
        """Take no new connections, then let the open ones finish. Follow with `cleanup`."""
        for site in self.sites:
            await site.stop()
        if isinstance(self.server, GuardedServer):
            await self.server.drain(timeout_s)

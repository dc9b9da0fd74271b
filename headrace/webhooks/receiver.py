"""A webhook receiver on this host that says of each call whether its signature is right, as an application would.

Promises the exact bytes and headers that came, judged before anything is done with them; what is not to be believed is
answered 400, so that a wrong signature shows as a failed delivery, too. Calls wait until it is known whom to believe.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from aiohttp import web

from headrace.webhooks.judging import Trust, why_not

_BODY_LIMIT_BYTES = 1 << 20
_END_S = 5.0  # for those that are being answered


@dataclass(frozen=True, slots=True)
class Call:
    """One call that came. `fault`: why it is not to be believed, None when it is."""

    headers: Mapping[str, str]
    body: bytes
    fault: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call is answered."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver:
    """Listens while it is open; `url` is where. Each call goes to `answer`, with its verdict."""

    def __init__(self, answer: Callable[[Call], Awaitable[Reply]], host: str = "127.0.0.1", port: int = 0) -> None:
        self.url = ""
        self._answer = answer
        self._place = host, port
        self._trust: asyncio.Future[Trust] = asyncio.get_running_loop().create_future()
        self._runner: web.AppRunner | None = None

    def believe(self, trust: Trust) -> None:
        """Judge calls by this from now on, also those that came before."""
        self._trust.set_result(trust)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_post("/{path:.*}", self._receive)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=_END_S)
        await self._runner.setup()
        host, port = self._place
        await web.TCPSite(self._runner, host, port).start()
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        fault = why_not(await asyncio.shield(self._trust), request.headers, body)
        reply = await self._answer(Call(request.headers, body, fault))
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)

"""A webhook receiver on loopback that believes only signed calls, as an application would write it.

Promises that `wait_for` returns only for a call whose signature the `standardwebhooks` package accepted. Answers 400
to anything else, so that a wrong signature shows as a failed delivery, too.
"""

import asyncio
from types import TracebackType
from typing import Self

import orjson
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from headrace.client import JsonObject

_BODY_LIMIT_BYTES = 1 << 20


class WebhookReceiver:
    """Listens while it is open; `url` is where."""

    def __init__(self, secret: str) -> None:
        self.url = ""
        self.refused = 0
        self._verifier = Webhook(secret)
        self._calls: asyncio.Queue[JsonObject] = asyncio.Queue()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_BODY_LIMIT_BYTES)
        app.router.add_post("/hook", self._receive)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/hook"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def wait_for(self, event_type: str, limit_s: float) -> str:
        """Return the type of the first signed call of this type. Raises TimeoutError."""
        async with asyncio.timeout(limit_s):
            while True:
                call = await self._calls.get()
                if call["type"] == event_type:
                    return event_type

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            self._verifier.verify(body, {name.lower(): value for name, value in request.headers.items()})
        except WebhookVerificationError:
            self.refused += 1
            return web.Response(status=400, text="bad signature")
        self._calls.put_nowait(orjson.loads(body))
        return web.Response(status=204)

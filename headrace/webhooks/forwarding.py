"""A call passed on to an application on this host, with the exact bytes and headers that came, and its answer back."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp
from multidict import CIMultiDict

from headrace.client import JsonObject
from headrace.webhooks.receiver import Call, Reply

LIMIT_S = 30.0
ANSWER_BYTES = 65_536
_OF_ONE_WAY = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_BACK = ("Content-Type", "Content-Encoding", "Retry-After")
_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # aiohttp adds these where a call has none


class Forwarder:
    """Passes calls on to one URL while it is open; redirects are an answer like another."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True), timeout=aiohttp.ClientTimeout(total=LIMIT_S),
            auto_decompress=False, skip_auto_headers=_OURS,
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def forward(self, call: Call) -> tuple[Reply, JsonObject]:
        """Return what the application answered and what to tell of it; 502 or 504 where nobody answered."""
        begun_s = time.monotonic()
        try:
            reply, error = await self._post(call), None
        except TimeoutError:
            reply, error = Reply(504), "no answer"
        except (aiohttp.ClientError, OSError) as fault:
            reply, error = Reply(502), str(fault) or type(fault).__name__
        told: JsonObject = {"status": reply.status, "ms": round((time.monotonic() - begun_s) * 1000)}
        return reply, told | ({} if error is None else {"error": error})

    async def _post(self, call: Call) -> Reply:
        assert self._session is not None, "use the forwarder as a context manager"
        headers = passed_on(call.headers)
        async with self._session.post(self._url, data=call.body, headers=headers, allow_redirects=False) as response:
            body = bytearray()
            while len(body) < ANSWER_BYTES and (some := await response.content.read(ANSWER_BYTES - len(body))):
                body += some
            back = {name: response.headers[name] for name in _BACK if name in response.headers}
            return Reply(response.status, bytes(body), back)


def passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers of a call without those of its own connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_ONE_WAY)

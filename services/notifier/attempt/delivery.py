"""One HTTP attempt to deliver a webhook.

Promises: ends within its time limit whatever the receiver does; connects only where `judge_address` allows,
judged on the very address the socket is made for; follows no redirect, uses no proxy of the environment,
keeps no cookie and shares no connection with any other attempt; sends each attempt exactly once.
The status line decides: a receiver that answered 2xx has the event, even if its answer never ends.
Does not promise: a second try (that is `verdict`), nor anything of the answer but status and Retry-After:
at most `ANSWER_BYTES_MAX` of it are read, so that the receiver can finish, and thrown away.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from contracts.outbound.guard import AddressGuard, guarded_session
from contracts.outbound.names import SystemResolver
from contracts.webhook_target import AllowPrivate, judge_url
from services.notifier.attempt.post import Post, Report
from services.notifier.attempt.signature import sign
from services.notifier.attempt.verdict import Answered, Outcome, TransportError, Unanswered

ANSWER_BYTES_MAX = 4096
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_ERRNOS: dict[int | None, TransportError] = {
    errno.ECONNREFUSED: TransportError.REFUSED,
    errno.ECONNRESET: TransportError.RESET,
    errno.ECONNABORTED: TransportError.RESET,
    errno.EPIPE: TransportError.RESET,
    errno.ETIMEDOUT: TransportError.TIMEOUT,
}


class Sender:
    """Sends attempts; one per process. Holds settings only, so any number may run at once."""

    def __init__(
        self,
        *,
        timeout_s: float,
        allow_private: AllowPrivate,
        user_agent: str,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._allow_private: AllowPrivate = allow_private
        self._user_agent = user_agent
        self._resolver = resolver or SystemResolver()
        self._tls = tls

    async def attempt(self, post: Post) -> Report:
        """Send once; every failure of the receiver or the network is a value.

        Raises:
            ValueError: the secrets cannot sign.
        """
        started_s = asyncio.get_running_loop().time()
        headers = self._headers(post)
        outcome = await self._send(post, headers)
        return Report(outcome, round((asyncio.get_running_loop().time() - started_s) * 1000))

    async def _send(self, post: Post, headers: dict[str, str]) -> Outcome:
        if judge_url(post.url, self._allow_private) is not None:
            return Unanswered(TransportError.BLOCKED_ADDRESS)
        guard = AddressGuard(self._allow_private)
        answer: Answered | None = None
        try:
            # One clock for everything from look-up to close.
            async with (
                asyncio.timeout(self._timeout_s),
                guarded_session(guard, self._resolver, self._tls, ANSWER_BYTES_MAX) as session,
                session.post(
                    URL(post.url, encoded=True), data=post.body, headers=headers, allow_redirects=False
                ) as response,
            ):
                answer = Answered(response.status, response.headers.get("Retry-After"))
                await _discard(response.content)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return answer or Unanswered(classify(error, guard))
        return answer

    def _headers(self, post: Post) -> dict[str, str]:
        headers = {
            **post.headers,
            "Content-Type": "application/json",
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            "webhook-id": post.message_id,
            "webhook-timestamp": str(post.timestamp_s),
            "webhook-signature": sign(post.secrets, post.message_id, post.timestamp_s, post.body),
            "webhook-attempt": str(post.attempt),
        }
        # It came from a caller's header once; anything but the exact W3C form stays out of ours.
        if post.traceparent and _TRACEPARENT.fullmatch(post.traceparent):
            headers["traceparent"] = post.traceparent
        return headers


def classify(error: Exception, guard: AddressGuard) -> TransportError:
    """Name the failure of an attempt; a refused address always wins, so that it looks the same each time."""
    if guard.refused:
        return TransportError.BLOCKED_ADDRESS
    match error:
        case aiohttp.ClientConnectorDNSError() | socket.gaierror() | UnicodeError():
            return TransportError.DNS
        case aiohttp.ClientSSLError() | aiohttp.ServerFingerprintMismatch() | ssl.SSLError():
            return TransportError.TLS
        case TimeoutError():
            return TransportError.TIMEOUT
        case aiohttp.ServerDisconnectedError():
            return TransportError.RESET
        case OSError():
            return _ERRNOS.get(error.errno, TransportError.UNREACHABLE)
        case _:
            return TransportError.PROTOCOL


async def _discard(answer: aiohttp.StreamReader) -> None:
    """Read the answer up to its limit, and no further."""
    left_bytes = ANSWER_BYTES_MAX
    while left_bytes > 0 and not answer.at_eof():
        left_bytes -= len(await answer.read(left_bytes))

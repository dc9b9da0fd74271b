"""One HTTP attempt to deliver a webhook.

Promises: ends within its time limit whatever the receiver does; connects only where `judge_address` allows,
judged on the very address the socket is made for; follows no redirect, uses no proxy of the environment,
keeps no cookie and shares no connection with attempts to another receiver; sends each attempt exactly once.
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
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from contracts.outbound.guard import AddressGuard, guarded_session
from contracts.outbound.kept import KeptSessions
from contracts.outbound.names import SystemResolver
from contracts.webhook_target import AllowPrivate, judge_url
from services.notifier.attempt.post import Post, Report
from services.notifier.attempt.signature import sign
from services.notifier.attempt.verdict import Answered, Outcome, TransportError, Unanswered

ANSWER_BYTES_MAX = 4096
KEPT_S = 1.0  # less than any server waits before it hangs up, so that we do not send into its hanging up
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_ERRNOS: dict[int | None, TransportError] = {
    errno.ECONNREFUSED: TransportError.REFUSED,
    errno.ECONNRESET: TransportError.RESET,
    errno.ECONNABORTED: TransportError.RESET,
    errno.EPIPE: TransportError.RESET,
    errno.ETIMEDOUT: TransportError.TIMEOUT,
}


class Sender:
    """Sends attempts; one per process, any number at once, each in a task of its own. Close with `aclose`."""

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
        self._guard = AddressGuard(allow_private)
        self._judge = lru_cache(maxsize=4_096)(partial(judge_url, allow_private=allow_private))
        self._kept = KeptSessions(partial(self._open, KEPT_S), KEPT_S)
        self._allow_private: AllowPrivate = allow_private
        self._user_agent = user_agent
        self._resolver = resolver or SystemResolver()
        self._tls = tls

    async def aclose(self) -> None:
        """Close what is kept."""
        await self._kept.aclose()

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
        if self._judge(post.url) is not None:
            return Unanswered(TransportError.BLOCKED_ADDRESS)
        guard = self._guard
        guard.watch()
        answer: Answered | None = None
        try:
            # One clock for everything from look-up to close.
            async with (
                asyncio.timeout(self._timeout_s),
                self._session(post.receiver) as session,
                session.post(
                    URL(post.url, encoded=True), data=post.body, headers=headers, allow_redirects=False
                ) as response,
            ):
                answer = Answered(response.status, response.headers.get("Retry-After"))
                await _discard(response.content)
                if response.headers.get("Connection", "").lower() != "keep-alive":
                    response.close()  # it may be about to hang up, and the next attempt would run into that
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            return answer or Unanswered(classify(error, guard))
        return answer

    def _session(self, receiver: str) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
        return self._kept.of(receiver) if receiver else self._open(None)

    def _open(self, kept_s: float | None) -> aiohttp.ClientSession:
        return guarded_session(self._guard, self._resolver, self._tls, ANSWER_BYTES_MAX, kept_s)

    def _headers(self, post: Post) -> dict[str, str]:
        headers = {
            **post.headers,
            "Content-Type": post.content_type,
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

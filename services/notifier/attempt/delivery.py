"""One HTTP attempt to deliver a webhook.

Promises: ends within its time limit whatever the receiver does; connects only where `judge_address` allows,
judged on the very address that is connected to, and only to hosts that the operator has listed for the tenant; follows
no redirect, uses no proxy of the environment, keeps no cookie and shares no connection with attempts to another
receiver; sends each attempt exactly once. The status line decides: a receiver that answered 2xx has the event, even if
its answer never ends. Of the answer no more than `answer_bytes` are kept, and nothing that is secret.
Does not promise: a second try (that is `verdict`).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from functools import lru_cache, partial

from contracts.outbound.exchange import encode_request, exchange
from contracts.outbound.guard import Outbound
from contracts.outbound.kept import KeptConnections
from contracts.outbound.terms import Blocked, LookupFailed, Malformed, ProxyFailed
from contracts.webhook_headers import name_fault, value_fault
from contracts.webhook_hosts import is_listed
from contracts.webhook_target import PUBLIC_PORTS, AllowPrivate, judge_url, place_of
from services.notifier.attempt.heard import longest_secret, take_down
from services.notifier.attempt.post import Heard, Post, Report
from services.notifier.attempt.signature import sign
from services.notifier.attempt.verdict import Answered, Outcome, TransportError, Unanswered

READ_BYTES = 4096  # of an answer at least, if it comes, so that the receiver can finish
KEPT_S = 1.0  # less than any server waits before it hangs up, so that we do not send into its hanging up
ANSWER_BYTES = 1024
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Sender:
    """Sends attempts; one per process, any number at once. Close with `aclose`."""

    def __init__(
        self,
        *,
        timeout_s: float,
        allow_private: AllowPrivate,
        user_agent: str,
        outbound: Outbound | None = None,
        ports: frozenset[int] = PUBLIC_PORTS,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self._timeout_s = timeout_s
        self._judge = lru_cache(maxsize=4_096)(partial(judge_url, allow_private=allow_private, ports=ports))
        self._place = lru_cache(maxsize=4_096)(place_of)
        self._kept = KeptConnections(KEPT_S)
        self._allow_private: AllowPrivate = allow_private
        self._user_agent = user_agent
        self._outbound = outbound or Outbound()
        self._answer_bytes = answer_bytes

    async def aclose(self) -> None:
        """Close what is kept."""
        self._kept.close()

    async def attempt(self, post: Post) -> Report:
        """Send once; every failure of the receiver or the network is a value.

        Raises:
            ValueError: the secrets cannot sign.
        """
        started_s = asyncio.get_running_loop().time()
        headers = self._headers(post)
        outcome, heard = await self._send(post, headers)
        return Report(outcome, round((asyncio.get_running_loop().time() - started_s) * 1000), heard)

    async def _send(self, post: Post, headers: dict[str, str]) -> tuple[Outcome, Heard | None]:
        if self._judge(post.url) is not None:
            return Unanswered(TransportError.BLOCKED_ADDRESS), None
        if post.hosts is not None and not is_listed(post.url, post.hosts):
            return Unanswered(TransportError.HOST_NOT_LISTED), None
        place, kept = self._place(post.url), self._kept if post.receiver else None
        request = encode_request("POST", place, headers, post.body, keep=kept is not None)
        answered: Answered | None = None
        heard: Heard | None = None
        body = bytearray()
        try:
            # One clock for everything from look-up to close.
            async with (
                asyncio.timeout(self._timeout_s),
                exchange(self._outbound, place, self._allow_private, request, kept, post.receiver) as answer,
            ):
                head = await answer.head()
                answered = Answered(head.status, head.headers.get("retry-after"))
                most = max(READ_BYTES, self._answer_bytes + longest_secret(post))
                while len(body) < most and (piece := await answer.read(most - len(body))):
                    body += piece
        except (TimeoutError, Blocked, LookupFailed, ProxyFailed, Malformed, OSError) as error:
            if answered is None:
                return Unanswered(classify(error)), None
        if self._answer_bytes:
            heard = take_down(head, bytes(body), post, self._answer_bytes)
        assert answered is not None
        return answered, heard

    def _headers(self, post: Post) -> dict[str, str]:
        # They were judged when they were set; nothing that is kept may change a request without being judged again.
        own = {name: value for name, value in post.headers.items() if not (name_fault(name) or value_fault(value))}
        headers = own | {
            "Content-Type": post.content_type,
            "User-Agent": self._user_agent,
            "Accept-Encoding": "identity",
            "webhook-id": post.message_id,
            "webhook-timestamp": str(post.timestamp_s),
            "webhook-signature": sign(post.secrets, post.message_id, post.timestamp_s, post.body, post.key),
            "webhook-attempt": str(post.attempt),
        }
        # It came from a caller's header once; anything but the exact W3C form stays out of ours.
        if post.traceparent and _TRACEPARENT.fullmatch(post.traceparent):
            headers["traceparent"] = post.traceparent
        return headers


def classify(error: Exception) -> TransportError:
    """Name the failure of an attempt."""
    match error:
        case Blocked():
            return TransportError.BLOCKED_ADDRESS
        case LookupFailed():
            return TransportError.DNS
        case ProxyFailed():
            return TransportError.PROXY
        case ssl.SSLError():
            return TransportError.TLS
        case TimeoutError():
            return TransportError.TIMEOUT
        case ConnectionRefusedError():
            return TransportError.REFUSED
        case ConnectionError():
            return TransportError.RESET
        case OSError():
            return TransportError.UNREACHABLE
        case _:
            return TransportError.PROTOCOL

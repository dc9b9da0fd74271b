"""The guard at the socket, and sessions that have no other way out.

Promises: a session connects only where `judge_address` allows, judged on the very address the socket is made for; it
uses no proxy of the environment, keeps no cookie and shares no connection with any other session.
"""

from __future__ import annotations

import errno
import socket
import ssl
from contextvars import ContextVar

import aiohttp
from aiohttp.abc import AbstractResolver

from contracts.webhook_target import AllowPrivate, judge_address

_REFUSALS: ContextVar[list[str]] = ContextVar("refusals")  # of the request of this task


class AddressGuard:
    """Makes the sockets of a session; the only place that sees the address about to be connected.

    A resolver is never asked for literals, and what it answers may change between a check and the connect. Where
    requests share a session, each calls `watch` in a task of its own, and learns of its own refusals only.
    """

    def __init__(self, allow_private: AllowPrivate) -> None:
        self._allow_private: AllowPrivate = allow_private
        self.watch()

    def watch(self) -> None:
        """Begin a request: nothing was refused yet."""
        _REFUSALS.set([])

    @property
    def refused(self) -> bool:
        """Whether an address of this request was refused."""
        return bool(_REFUSALS.get([]))

    def __call__(self, addr_info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = addr_info
        if judge_address(str(address[0]), self._allow_private) is not None:
            _REFUSALS.get([]).append(str(address[0]))
            raise PermissionError(errno.EACCES, "address not allowed")
        return socket.socket(family, kind, protocol)


def guarded_session(
    guard: AddressGuard,
    resolver: AbstractResolver,
    tls: ssl.SSLContext | None,
    read_buffer_bytes: int,
    kept_s: float | None = None,
) -> aiohttp.ClientSession:
    """Make a session for one request, or for all that go to one receiver: `kept_s` is how long a connection may idle.

    What is not shared cannot leak between tenants or go stale.

    It has no time limit of its own: aiohttp's `total` rounds up to whole seconds and does not bound every path, and a
    per-read limit never fires on a peer that drips. Put one clock around all of it.
    """
    connector = aiohttp.TCPConnector(
        socket_factory=guard,
        resolver=resolver,
        use_dns_cache=False,
        limit=0,
        **({"force_close": True} if kept_s is None else {"keepalive_timeout": kept_s}),
        ssl=tls or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
        auto_decompress=False,
        read_bufsize=read_buffer_bytes,
    )

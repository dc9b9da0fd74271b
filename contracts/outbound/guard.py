"""The guard at the socket, and sessions that have no other way out.

Promises: a session connects only where `judge_address` allows, judged on the very address the socket is made for; it
uses no proxy of the environment, keeps no cookie and shares no connection with any other session.
"""

from __future__ import annotations

import errno
import socket
import ssl

import aiohttp
from aiohttp.abc import AbstractResolver

from contracts.webhook_target import AllowPrivate, judge_address


class AddressGuard:
    """Makes the sockets of one session; the only place that sees the address about to be connected.

    A resolver is never asked for literals, and what it answers may change between a check and the connect.
    """

    def __init__(self, allow_private: AllowPrivate) -> None:
        self._allow_private: AllowPrivate = allow_private
        self.refused = False

    def __call__(self, addr_info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = addr_info
        if judge_address(str(address[0]), self._allow_private) is not None:
            self.refused = True
            raise PermissionError(errno.EACCES, "address not allowed")
        return socket.socket(family, kind, protocol)


def guarded_session(
    guard: AddressGuard, resolver: AbstractResolver, tls: ssl.SSLContext | None, read_buffer_bytes: int
) -> aiohttp.ClientSession:
    """Make a session for one request: what is not shared cannot leak between tenants or go stale.

    It has no time limit of its own: aiohttp's `total` rounds up to whole seconds and does not bound every path, and a
    per-read limit never fires on a peer that drips. Put one clock around all of it.
    """
    connector = aiohttp.TCPConnector(
        socket_factory=guard,
        resolver=resolver,
        use_dns_cache=False,
        force_close=True,
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

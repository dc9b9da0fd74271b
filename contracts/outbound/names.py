"""Name look-ups for addresses that callers chose: the system's resolver in threads of its own.

Promises: a look-up that hangs holds one of `LOOKUPS_MAX` daemon threads and nothing else.
Does not promise: caching or judging. Each request looks up afresh; the socket's guard judges what it got.
"""

from __future__ import annotations

import socket
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from contracts.threads import Threads

LOOKUPS_MAX = 256


class SystemResolver(AbstractResolver):
    """Resolve by getaddrinfo. Asking for a host that does not exist raises OSError."""

    def __init__(self) -> None:
        self._threads = Threads(LOOKUPS_MAX, "outbound-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await self._threads.run(_look_up, host, port, family)

    async def close(self) -> None:
        """Leave running look-ups alone: their threads end by themselves and hold nothing."""


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    # Without ADDRCONFIG a host that has no IPv6 would report "no route" where IPv4 was refused.
    found: list[Any] = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=address[0],
            port=address[1],
            family=found_family,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found_family, _, proto, _, address in found
    ]

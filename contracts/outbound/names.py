"""Name look-ups for addresses that callers chose.

Promises: a look-up that hangs holds one of `LOOKUPS_MAX` daemon threads and nothing else.
Does not promise: caching or judging. The addresses are judged by whoever connects.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from contracts.outbound.terms import LookupFailed
from contracts.threads import Threads

LOOKUPS_MAX = 256


class Resolver(Protocol):
    """Says where a name leads."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return addresses, those to be tried first in front. Raises LookupFailed."""
        ...


class SystemResolver:
    """Asks the system, in threads."""

    def __init__(self) -> None:
        self._threads = Threads(LOOKUPS_MAX, "outbound-lookup")

    async def resolve(self, host: str) -> Sequence[str]:
        """Return addresses in the order of the system. Raises LookupFailed."""
        return await self._threads.run(_look_up, host)


def _look_up(host: str) -> Sequence[str]:
    try:
        # Without ADDRCONFIG a host that has no IPv6 would report "no route" where IPv4 was refused.
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except (OSError, UnicodeError):
        raise LookupFailed from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolver_of(nameservers: Sequence[tuple[str, int]]) -> Resolver:
    """Return what asks these nameservers, or the system if there are none."""
    if not nameservers:
        return SystemResolver()
    from contracts.outbound.nameservers import NameserverResolver  # a DNS client that few installations need

    return NameserverResolver(nameservers)

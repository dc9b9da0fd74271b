"""The guard where connections are made: the one way from here to where a caller said.

Promises: connects only to an address that `judge_address` allows, judged as the very text that is connected to, each
time anew: what a name led to before does not matter. Uses no proxy of the environment. One connection is for one
request and for nobody else. A target that leads inside looks the same whether anything listens there or not: it is
never spoken to.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from contracts.outbound.names import Resolver, SystemResolver, resolver_of
from contracts.outbound.terms import Blocked, Proxy, Route
from contracts.outbound.tunnel import open_tunnel
from contracts.webhook_target import AllowPrivate, Place, judge_address

ADDRESSES_MAX = 6  # of one name; who lists more has only that many tried
NEXT_AFTER_S = 2.0  # an address that does not answer for so long is left for the next one
_CLOSE_S = 1.0

P = TypeVar("P", bound=asyncio.Protocol)


class Outbound:
    """Connects for any number of requests at once; holds settings only, and nothing of any request."""

    def __init__(
        self, resolver: Resolver | None = None, proxy: Proxy | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._resolver, self._proxy = resolver or SystemResolver(), proxy
        self._near = SystemResolver()  # the operator's own proxy is a name of this network
        self._tls = tls or _trusting()

    @classmethod
    def by(cls, route: Route) -> Outbound:
        """Return what connects as the operator has it."""
        return cls(resolver_of(route.nameservers), route.proxy)

    async def connect(self, place: Place, allow_private: AllowPrivate, protocol: Callable[[], P]) -> P:
        """Connect. Raises Blocked, LookupFailed, ProxyFailed, OSError (ssl.SSLError among them)."""
        found = [place.host] if place.is_address else await self._resolver.resolve(place.host)
        allowed = [address for address in found if _is_allowed(address, allow_private)]
        addresses = allowed[:ADDRESSES_MAX]
        for number, address in enumerate(addresses, 1):
            try:
                async with asyncio.timeout(None if number == len(addresses) else NEXT_AFTER_S):
                    return await self._connect(address, place, protocol)
            except ssl.SSLError:
                raise
            except OSError:
                # A name that also leads inside is not a way to learn what is there.
                if number == len(addresses) and len(allowed) == len(found):
                    raise
        raise Blocked

    async def _connect(self, address: str, place: Place, protocol: Callable[[], P]) -> P:
        connect = asyncio.get_running_loop().create_connection
        tls, name = (self._tls, place.host) if place.is_tls else (None, None)
        ending_s = _CLOSE_S if place.is_tls else None
        if self._proxy is None:
            _, made = await connect(
                protocol, address, place.port, ssl=tls, server_hostname=name, ssl_shutdown_timeout=ending_s
            )
            return made
        handle = await open_tunnel(self._proxy, self._near, address, place.port)
        try:
            _, made = await connect(protocol, sock=handle, ssl=tls, server_hostname=name, ssl_shutdown_timeout=ending_s)
            return made
        except BaseException:
            handle.close()
            raise


@lru_cache(maxsize=4_096)
def _is_allowed(address: str, allow_private: AllowPrivate) -> bool:
    # It depends on nothing but its text, and the receivers of one process are few.
    return judge_address(address, allow_private) is None


@lru_cache(maxsize=1)
def _trusting() -> ssl.SSLContext:
    """One for all: it holds what is trusted and nothing of a connection, and is dear to make."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

"""Name look-ups at nameservers of the operator's choice, whatever the system would say.

Promises: asks those servers and nobody else, in turn, and ends within `LOOKUP_S`; what they say is used again for as
long as they say, of `NAMES_MAX` names at most; localhost is this host, whatever they say of it (RFC 6761). No search
list and no hosts file is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from contracts.outbound.terms import LookupFailed

ASK_S = 2.0  # one server, once
LOOKUP_S = 5.0
NAMES_MAX = 2_000
_LOOPBACK = ("127.0.0.1", "::1")


class NameserverResolver:
    """Asks for IPv4 and IPv6 at once; IPv4 is tried first, since it is what hosts have for certain."""

    def __init__(self, nameservers: Sequence[tuple[str, int]]) -> None:
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in nameservers]
        resolver.timeout, resolver.lifetime = ASK_S, LOOKUP_S
        resolver.cache = dns.resolver.LRUCache(NAMES_MAX)
        self._resolver = resolver

    async def resolve(self, host: str) -> Sequence[str]:
        """Return the addresses of a name. Raises LookupFailed."""
        if host == "localhost" or host.endswith(".localhost"):
            return _LOOPBACK
        try:
            name = dns.name.from_text(host)
        except dns.exception.DNSException:
            raise LookupFailed from None
        kinds = (dns.rdatatype.A, dns.rdatatype.AAAA)
        answers = await asyncio.gather(*(self._ask(name, kind) for kind in kinds))
        addresses = [address for answer in answers if answer is not None for address in answer]
        if not addresses:  # a name without any, or no answer to either question
            raise LookupFailed
        return addresses

    async def _ask(self, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> list[str] | None:
        try:
            answer = await self._resolver.resolve(name, kind, raise_on_no_answer=False, search=False)
        except (dns.exception.DNSException, OSError):
            return None
        return [record.address for record in answer]

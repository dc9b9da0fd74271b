"""A small DNS server over UDP on a free port of this host: it says what a test wants, each time something else."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Answers = Mapping[str, Sequence[Sequence[str]]]  # name -> what each question in turn is answered, the last for ever


class DnsServer(asyncio.DatagramProtocol):
    """Answers A and AAAA questions; counts them. What it does not know does not exist; `mute` answers nothing."""

    def __init__(self, answers: Answers, ttl_s: int = 0, mute: bool = False) -> None:
        self._answers, self._ttl_s, self.mute = answers, ttl_s, mute
        self.asked: Counter[tuple[str, str]] = Counter()
        self.port = 0

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.mute:
            self._transport.sendto(self._answer(dns.message.from_wire(data)).to_wire(), addr)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        [question] = query.question
        name, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        turn = self.asked[name, kind]
        self.asked[name, kind] += 1
        reply = dns.message.make_response(query, recursion_available=True)
        if name not in self._answers:
            reply.set_rcode(dns.rcode.NXDOMAIN)
            return reply
        turns = self._answers[name]
        version = 4 if kind == "A" else 6
        addresses = [each for each in turns[min(turn, len(turns) - 1)] if ipaddress.ip_address(each).version == version]
        if addresses:
            reply.answer.append(dns.rrset.from_text(question.name, self._ttl_s, "IN", kind, *addresses))
        return reply


@asynccontextmanager
async def dns_server(answers: Answers, *, ttl_s: int = 0, mute: bool = False) -> AsyncIterator[DnsServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: DnsServer(answers, ttl_s, mute), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()

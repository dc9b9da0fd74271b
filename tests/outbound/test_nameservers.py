"""Names asked of nameservers of the operator's choice, with a real one on this host."""

import asyncio
import time
from pathlib import Path

import pytest

from contracts.outbound.fetch import Fetcher
from contracts.outbound.guard import Outbound
from contracts.outbound.nameservers import NameserverResolver
from contracts.outbound.terms import Bounds, LookupFailed, Refused, Route
from services.notifier.attempt.delivery import Sender
from services.notifier.attempt.verdict import Answered, TransportError, Unanswered
from tests.notifier.receiver import Receiver, answer
from tests.notifier.test_delivery import post
from tests.outbound.dns_server import DnsServer, dns_server

PUBLIC, INSIDE = "203.0.114.7", "10.0.0.1"
BLOCKED = Unanswered(TransportError.BLOCKED_ADDRESS)


def sender(server: DnsServer, allow_private: str = "none", **settings: object) -> Sender:
    outbound = Outbound.by(Route(nameservers=(server.address,)))
    return Sender(timeout_s=5, allow_private=allow_private, user_agent="t", outbound=outbound, **settings)  # type: ignore[arg-type]


async def test_a_name_that_leads_inside_at_its_second_look_up_is_refused_then(tmp_path: Path) -> None:
    """Rebinding through a real DNS server: open first, inside afterwards; webhooks and input files alike."""
    open_then_inside = [["127.0.0.1"], [INSIDE]]
    names = {"a.evil.example": open_then_inside, "b.evil.example": open_then_inside}
    async with Receiver([answer(200, body=b"x")]) as receiver, dns_server(names) as server:
        # On this host the open address is a loopback one; 10.0.0.1 stays shut in that setting.
        one = sender(server, "loopback")
        outbound = Outbound.by(Route(nameservers=(server.address,)))
        place = f"http://%s:{receiver.port}/"
        # http to a name is for `all` only, so the guard is asked below the judge of URLs.
        first = await _reach(outbound, place % "a.evil.example")
        second = await _reach(outbound, place % "a.evil.example")
        assert (first, second) == ("connected", "Blocked")
        assert receiver.connections == 1
        attempts = [(await one.attempt(post("https://b.evil.example/"))).outcome for _ in range(2)]
        assert isinstance(attempts[0], Unanswered)
        assert attempts[0] != BLOCKED
        assert attempts[1] == BLOCKED
        with pytest.raises(Refused, match="must not be reached"):
            await Fetcher("t", outbound).fetch("https://b.evil.example/f", tmp_path / "f", Bounds(10, 5, "loopback"))
    assert server.asked["a.evil.example", "A"] == 2
    assert server.asked["b.evil.example", "A"] == 3


async def _reach(outbound: Outbound, url: str) -> str:
    from contracts.outbound.connection import Connection
    from contracts.webhook_target import place_of

    try:
        connection = await outbound.connect(place_of(url), "loopback", Connection)
    except Exception as error:
        return type(error).__name__
    connection.close()
    return "connected"


@pytest.mark.parametrize(
    "address",
    ["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2001::80ff:fffe",
     "::1", "fd00::1", "fe80::1", "fd00:ec2::254", "127.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"],
)  # fmt: skip
async def test_no_answer_of_a_nameserver_leads_inside(address: str) -> None:
    """Field case 109: what a text cannot show: IPv4 inside IPv6, NAT64, 6to4, Teredo and metadata behind a name."""
    async with dns_server({"evil.example": [[address]]}) as server:
        report = await sender(server).attempt(post("https://evil.example/"))
    assert report.outcome == BLOCKED


async def test_of_a_mixed_answer_only_what_is_outside_is_tried_and_its_failure_tells_nothing() -> None:
    """Field case 110: a name that also leads inside fails as one that only does, whatever its other address does."""
    async with (
        Receiver([answer(200)]) as receiver,
        dns_server({"mixed.localhost.example": [[INSIDE, "127.0.0.1"]]}) as server,
    ):
        reached = await _reach(
            Outbound.by(Route(nameservers=(server.address,))), f"http://mixed.localhost.example:{receiver.port}/"
        )
        nobody = await _reach(Outbound.by(Route(nameservers=(server.address,))), "http://mixed.localhost.example:9/")
    assert (reached, nobody) == ("connected", "Blocked")


@pytest.mark.parametrize("name", ["gone.example", "empty.example", "a..b"])
async def test_a_name_without_an_address_is_a_failed_look_up(name: str) -> None:
    async with dns_server({"empty.example": [[]]}) as server:
        with pytest.raises(LookupFailed):
            await NameserverResolver([server.address]).resolve(name)


async def test_a_mute_nameserver_is_left_for_the_next_and_all_mute_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("contracts.outbound.nameservers.ASK_S", 0.1)
    monkeypatch.setattr("contracts.outbound.nameservers.LOOKUP_S", 0.5)
    async with dns_server({}, mute=True) as mute, dns_server({"a.example": [[PUBLIC]]}) as server:
        assert await NameserverResolver([mute.address, server.address]).resolve("a.example") == [PUBLIC]
        begun_s = time.monotonic()
        with pytest.raises(LookupFailed):
            await NameserverResolver([mute.address]).resolve("a.example")
        assert time.monotonic() - begun_s < 3


async def test_both_families_are_asked_at_once_and_ipv4_is_tried_first() -> None:
    async with dns_server({"a.example": [["2606:4700::1111", PUBLIC]]}) as server:
        assert await NameserverResolver([server.address]).resolve("a.example") == [PUBLIC, "2606:4700::1111"]


async def test_an_answer_is_used_again_for_as_long_as_it_says_and_each_time_judged() -> None:
    async with dns_server({"a.example": [[INSIDE], [PUBLIC]]}, ttl_s=300) as server:
        one = sender(server)
        outcomes = [(await one.attempt(post("https://a.example/"))).outcome for _ in range(3)]
    assert outcomes == [BLOCKED] * 3
    assert server.asked["a.example", "A"] == 1


async def test_localhost_is_this_host_and_is_asked_of_nobody() -> None:
    async with Receiver([answer(204)]) as receiver, dns_server({"localhost": [[PUBLIC]]}) as server:
        report = await sender(server, "loopback").attempt(post(receiver.url(host="localhost")))
    assert report.outcome == Answered(204)
    assert not server.asked


async def test_look_ups_of_many_attempts_run_beside_each_other() -> None:
    async with dns_server({f"n{number}.example": [[INSIDE]] for number in range(50)}) as server:
        one = sender(server)
        outcomes = await asyncio.gather(*(one.attempt(post(f"https://n{number}.example/")) for number in range(50)))
    assert {report.outcome for report in outcomes} == {BLOCKED}

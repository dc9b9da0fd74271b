"""The way out through the operator's proxy: what it is told, what it fails at, and what stays between the two ends."""

import ssl
from pathlib import Path

import pytest

from contracts.outbound.fetch import Fetcher
from contracts.outbound.guard import Outbound
from contracts.outbound.terms import Bounds, Proxy, Refused, Unreachable
from services.notifier.attempt.delivery import Sender
from services.notifier.attempt.verdict import Answered, TransportError, Unanswered
from tests.notifier.certificates import server_tls
from tests.notifier.receiver import Receiver, answer, close_without_answer
from tests.notifier.test_delivery import Names, closed_port, post
from tests.outbound.proxy import ConnectProxy, connect_proxy

PUBLIC = "203.0.114.7"


def through(
    proxy: ConnectProxy | Proxy, *addresses: str, tls: ssl.SSLContext | None = None, **settings: object
) -> Sender:
    at = proxy if isinstance(proxy, Proxy) else Proxy("127.0.0.1", proxy.port, "Basic c2VjcmV0")
    outbound = Outbound(Names([*addresses] or [PUBLIC]), at, tls)
    chosen = {"timeout_s": 10, "allow_private": "none", "user_agent": "t", **settings}
    return Sender(outbound=outbound, **chosen)  # type: ignore[arg-type]


async def test_the_proxy_is_told_an_address_that_was_judged_and_no_name(certificate: tuple[str, str]) -> None:
    """Resolve, judge, CONNECT to that very address; the name is for the receiver only, as server name and Host."""
    seen: list[str | None] = []
    tls = server_tls(certificate)
    tls.sni_callback = lambda _, name, __: seen.append(name)
    trusting = ssl.create_default_context(cafile=certificate[0])
    async with Receiver([answer(200)], tls=tls) as receiver, connect_proxy(("127.0.0.1", receiver.port)) as proxy:
        report = await through(proxy, tls=trusting).attempt(post("https://hook.example/path?token=t"))
        [request] = receiver.requests
    assert report.outcome == Answered(200)
    assert proxy.asked == [
        f"CONNECT {PUBLIC}:443 HTTP/1.1\r\nHost: {PUBLIC}:443\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n"
    ]
    assert seen == ["hook.example"]
    assert request.headers["host"] == "hook.example"
    assert "proxy-authorization" not in request.headers
    assert b"token" not in proxy.passed


async def test_plain_http_goes_through_a_tunnel_too() -> None:
    async with Receiver([answer(200)]) as receiver, connect_proxy(("127.0.0.1", receiver.port)) as proxy:
        report = await through(proxy, "10.0.0.9", allow_private="all").attempt(post("http://hook.example:8000/x"))
    assert report.outcome == Answered(200)
    assert proxy.asked[0].startswith("CONNECT 10.0.0.9:8000 HTTP/1.1\r\n")
    assert "hook.example" not in proxy.asked[0]


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1"])
async def test_what_leads_inside_is_not_even_told_to_the_proxy(address: str) -> None:
    """A proxy that stands inside could reach what we cannot: the address is judged here."""
    async with connect_proxy(("127.0.0.1", 9)) as proxy:
        report = await through(proxy, address).attempt(post("https://hook.example/"))
        literal = await through(proxy).attempt(
            post(f"https://[{address}]/" if ":" in address else f"https://{address}/")
        )
    assert report.outcome == literal.outcome == Unanswered(TransportError.BLOCKED_ADDRESS)
    assert proxy.asked == []


async def test_an_ipv6_address_is_written_in_brackets() -> None:
    async with connect_proxy(("127.0.0.1", 9), b"HTTP/1.1 403 No\r\n\r\n") as proxy:
        await through(proxy, "2606:4700::1111").attempt(post("https://hook.example/"))
    assert proxy.asked[0].startswith("CONNECT [2606:4700::1111]:443 HTTP/1.1\r\nHost: [2606:4700::1111]:443\r\n")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", TransportError.PROXY),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!", TransportError.PROXY),
        (b"HTTP/1.1 500 Oops\r\n\r\n", TransportError.PROXY),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", TransportError.PROXY),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", TransportError.PROXY),
        (b"X" * 100_000, TransportError.PROXY),
        (b"", TransportError.PROXY),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", TransportError.PROXY),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", TransportError.UNREACHABLE),
        (b"HTTP/1.1 503 Connect failed\r\n\r\n", TransportError.UNREACHABLE),
        (b"HTTP/1.1 504 Gateway Timeout\r\n\r\n", TransportError.UNREACHABLE),
    ],
)
async def test_what_the_proxy_does_wrong_is_its_own_code(said: bytes, error: TransportError) -> None:
    """Also an answer in the name of the receiver: one that comes before anything was sent to it."""
    async with Receiver([close_without_answer]) as receiver, connect_proxy(("127.0.0.1", receiver.port), said) as proxy:
        report = await through(proxy).attempt(post("https://hook.example/"))
    assert report.outcome == Unanswered(error)
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-proxy.invalid"])
async def test_a_proxy_that_is_not_there_is_its_own_code(host: str) -> None:
    report = await through(Proxy(host, closed_port())).attempt(post("https://hook.example/"))
    assert report.outcome == Unanswered(TransportError.PROXY)


async def test_input_files_go_through_it_as_well(tmp_path: Path) -> None:
    async with Receiver([answer(200, body=b"file")]) as server, connect_proxy(("127.0.0.1", server.port)) as proxy:
        bounds = Bounds(100, 10, "all")
        fetcher = Fetcher("t", Outbound(Names(["10.0.0.9"]), Proxy("127.0.0.1", proxy.port)))
        assert await fetcher.fetch("http://files.example/a", tmp_path / "a", bounds) == 4
        with pytest.raises(Refused, match="must not be reached"):
            await Fetcher("t", Outbound(Names(["10.0.0.9"]), Proxy("127.0.0.1", proxy.port))).fetch(
                "https://files.example/a", tmp_path / "b", Bounds(100, 10, "none")
            )
        gone = Fetcher("t", Outbound(Names(["10.0.0.9"]), Proxy("127.0.0.1", closed_port())))
        with pytest.raises(Unreachable, match="proxy"):
            await gone.fetch("http://files.example/a", tmp_path / "c", bounds)
    assert [asked.split()[1] for asked in proxy.asked] == ["10.0.0.9:80"]


def test_a_password_of_the_proxy_is_in_no_repr() -> None:
    assert "c2VjcmV0" not in repr(Proxy("p", 1, "Basic c2VjcmV0"))

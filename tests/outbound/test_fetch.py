"""Field case 8: fetching an input file reaches nothing inside and ends within size and time, whatever a server does."""

import asyncio
from pathlib import Path

import pytest

from contracts.outbound.fetch import Fetcher
from contracts.outbound.guard import Outbound
from contracts.outbound.names import Resolver
from contracts.outbound.terms import Bounds, Refused, Unreachable
from contracts.webhook_target import AllowPrivate
from tests.notifier.receiver import (
    Behaviour,
    Receiver,
    answer,
    close_without_answer,
    dripping_headers,
    not_http,
    reset,
    silent,
)

LOOPBACK = Bounds(size_bytes=1_000, seconds=20, allow_private="loopback")
QUICK = Bounds(size_bytes=100_000, seconds=0.5, allow_private="loopback")


class Names:
    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(self, host: str) -> tuple[str, ...]:
        return self.addresses


def sending(head: bytes, body: bytes = b"", again: bytes = b"", pause_s: float = 0.0) -> Behaviour:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)
        while again:
            await writer.drain()
            writer.write(again)
            await asyncio.sleep(pause_s)

    return behave


async def fetch(url: str, target: Path, bounds: Bounds = LOOPBACK, resolver: Resolver | None = None) -> int:
    return await Fetcher("headrace-test", Outbound(resolver)).fetch(url, target, bounds)


async def test_a_file_is_fetched_as_it_is(tmp_path: Path) -> None:
    async with Receiver([answer(200, {"Content-Type": "image/png"}, b"p" * 1_000)]) as server:
        size = await fetch(server.url("/a.png?key=1"), tmp_path / "file")
        (request,) = server.requests
    assert (size, (tmp_path / "file").read_bytes()) == (1_000, b"p" * 1_000)
    assert request.request_line == "GET /a.png?key=1 HTTP/1.1"
    assert request.headers["accept-encoding"] == "identity"
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/", "http://127.0.0.1:6379/",
        "https://127.0.0.1/", "https://[::1]/", "https://localhost/", "https://2130706433/", "https://0x7f.1/",
        "https://[::ffff:127.0.0.1]/", "https://10.0.0.1/", "file:///etc/passwd", "gopher://a.example/",
        "https://user:hunter2@a.example/", "https://a.example:6379/",
    ],
)  # fmt: skip
async def test_no_url_leads_inside(url: str, tmp_path: Path) -> None:
    """Field case 8: metadata service, loopback, IPv6, other schemes."""
    with pytest.raises(Refused) as caught:
        await fetch(url, tmp_path / "file", Bounds(1_000, 20, "none"))
    assert not (tmp_path / "file").exists()
    assert "169.254" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("allow", "address"),
    [("none", "127.0.0.1"), ("none", "10.1.2.3"), ("loopback", "169.254.169.254"), ("loopback", "192.168.0.9")],
)
async def test_a_name_that_leads_inside_is_refused_at_the_socket(
    allow: AllowPrivate, address: str, tmp_path: Path
) -> None:
    """Field case 8: DNS rebinding; what the name led to a moment ago does not matter."""
    with pytest.raises(Refused, match="must not be reached"):
        await fetch("https://rebound.example/a", tmp_path / "file", Bounds(1_000, 20, allow), Names(address))


@pytest.mark.parametrize("target", ["http://169.254.169.254/", "http://127.0.0.1:1/", "https://b.example/"])
async def test_a_redirect_is_not_followed(target: str, tmp_path: Path) -> None:
    """Field case 8: redirect to the inside."""
    async with Receiver([answer(302, {"Location": target})]) as server:
        with pytest.raises(Refused, match="redirects are not followed"):
            await fetch(server.url(), tmp_path / "file")
        assert server.connections == 1


@pytest.mark.parametrize(
    "behaviour",
    [
        sending(b"Content-Length: 10000000000"),
        sending(b"Transfer-Encoding: chunked", again=b"8000\r\n" + b"x" * 0x8000 + b"\r\n"),
        sending(b"Connection: close", again=b"x" * 65_536),
    ],
    ids=["declared", "chunked", "until close"],
)
async def test_a_body_beyond_the_limit_is_cut_off(behaviour: Behaviour, tmp_path: Path) -> None:
    """Field case 8: 10 GB body, declared or not."""
    async with Receiver([behaviour]) as server:
        with pytest.raises(Refused, match="larger than 1000 bytes"):
            await fetch(server.url(), tmp_path / "file")
    assert not (tmp_path / "file").exists() or (tmp_path / "file").stat().st_size <= 1_000


async def test_a_slow_drip_ends_in_time(tmp_path: Path) -> None:
    """Field case 8: each byte arrives before any per-read limit would notice."""
    async with Receiver([sending(b"Content-Length: 90000", again=b"x", pause_s=0.02)]) as server:
        begun = asyncio.get_running_loop().time()
        with pytest.raises(Refused, match="did not arrive within"):
            await fetch(server.url(), tmp_path / "file", QUICK)
        assert asyncio.get_running_loop().time() - begun < 10


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (answer(404), Refused), (answer(403), Refused), (answer(204), Refused), (answer(206), Refused),
        (sending(b"Content-Encoding: gzip\r\nContent-Length: 1", b"x"), Refused),
        (answer(429), Unreachable), (answer(500), Unreachable), (answer(503), Unreachable),
        (close_without_answer, Unreachable), (reset, Unreachable), (silent, Unreachable),
        (dripping_headers, Unreachable), (not_http, Unreachable),
        (sending(b"Content-Length: 50\r\nConnection: close", b"too short"), Unreachable),
    ],
)  # fmt: skip
async def test_what_asking_again_cannot_mend_is_final(
    behaviour: Behaviour, kind: type[Exception], tmp_path: Path
) -> None:
    async with Receiver([behaviour]) as server:
        with pytest.raises(kind) as caught:
            await fetch(server.url("/secret-path"), tmp_path / "file", QUICK)
    assert "secret-path" not in str(caught.value)


async def test_nobody_there_is_not_final(tmp_path: Path) -> None:
    async with Receiver([answer(200)]) as server:
        url = server.url()
    with pytest.raises(Unreachable):
        await fetch(url, tmp_path / "file")


async def test_a_server_that_speaks_no_tls_is_final(tmp_path: Path) -> None:
    async with Receiver([not_http]) as server:
        server.script[0].before_reading = True  # type: ignore[attr-defined]
        with pytest.raises(Refused, match="certificate"):
            await fetch(f"https://127.0.0.1:{server.port}/", tmp_path / "file")

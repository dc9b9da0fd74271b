"""One HTTP attempt against receivers that behave and receivers that do not."""

import asyncio
import base64
import contextlib
import os
import re
import socket
import ssl
import sys
import time

import pytest
from standardwebhooks import Webhook

from contracts.outbound.guard import Outbound
from contracts.outbound.names import SystemResolver
from contracts.outbound.terms import LookupFailed
from services.notifier.attempt.delivery import Sender
from services.notifier.attempt.post import Post
from services.notifier.attempt.verdict import Answered, TransportError, Unanswered
from tests.notifier.certificates import server_tls
from tests.notifier.receiver import (
    Receiver,
    answer,
    close_without_answer,
    continue_only,
    dripping_body,
    dripping_headers,
    endless_body,
    endless_headers,
    half_status_line,
    headers_then_stop,
    not_http,
    reset,
    silent,
)

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
TIMEOUT_S = 0.5


class Names:
    """A resolver that gives the next list of addresses at each look-up, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def resolve(self, host):
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def sender(*, resolver=None, tls=None, **changes) -> Sender:
    settings = {"timeout_s": 20, "allow_private": "loopback", "user_agent": "headrace/test"}
    settings["outbound"] = Outbound(resolver, tls=tls)
    return Sender(**(settings | changes))


def post(url: str, **changes) -> Post:
    fields = {
        "url": url,
        "message_id": "evt_1",
        "attempt": 3,
        "timestamp_s": int(time.time()),
        "secrets": (SECRET,),
        "body": '{"text":"\U0001f600\u2028"}'.encode(),
    }
    return Post(**(fields | changes))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_delivery_carries_the_standard_headers_over_the_exact_bytes():
    """Field case 111: the reference library verifies what a receiver really gets."""
    async with Receiver([answer(204)]) as receiver:
        sent = post(receiver.url("/hook?a=%2Fb"))
        report = await sender().attempt(sent)

    [request] = receiver.requests
    assert report.outcome == Answered(204)
    assert request.request_line == "POST /hook?a=%2Fb HTTP/1.1"
    assert request.body == sent.body
    assert Webhook(SECRET).verify(request.body, request.headers) == {"text": "\U0001f600\u2028"}
    assert request.headers["webhook-attempt"] == "3"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "headrace/test"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("status", [200, 204, 299, 400, 404, 410, 413, 500, 503])
async def test_the_status_is_reported_as_it_is(status):
    async with Receiver([answer(status, {"Retry-After": "7"})]) as receiver:
        report = await sender().attempt(post(receiver.url()))
    assert report.outcome == Answered(status, "7")


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (reset, TransportError.RESET),
        (close_without_answer, TransportError.RESET),
        (silent, TransportError.TIMEOUT),
        (continue_only, TransportError.TIMEOUT),
        (not_http, TransportError.PROTOCOL),
    ],
)
async def test_each_broken_connection_has_its_own_code(behaviour, error):
    """Field case 89: reset and silence are attempts with their own code."""
    timeout_s = TIMEOUT_S if error is TransportError.TIMEOUT else 20
    async with Receiver([behaviour]) as receiver:
        report = await sender(timeout_s=timeout_s).attempt(post(receiver.url()))
    assert report.outcome == Unanswered(error)


async def test_a_closed_port_is_refused():
    """Field case 89: refused has its own code."""
    report = await sender().attempt(post(f"http://127.0.0.1:{closed_port()}/"))
    assert report.outcome == Unanswered(TransportError.REFUSED)


async def test_a_name_that_does_not_resolve_is_a_dns_failure():
    """Field case 89: dns has its own code."""

    class Nobody(Names):
        async def resolve(self, host):
            raise LookupFailed

    report = await sender(resolver=Nobody([])).attempt(post("https://gone.example/"))
    assert report.outcome == Unanswered(TransportError.DNS)


async def test_the_system_resolver_knows_this_machine_and_reports_what_it_does_not_know():
    resolver = SystemResolver()
    assert {*await resolver.resolve("localhost")} <= {"127.0.0.1", "::1"}
    with pytest.raises(LookupFailed):
        await resolver.resolve("no-such-host.invalid")


@pytest.mark.parametrize(
    "behaviour",
    [
        silent,
        half_status_line,
        headers_then_stop,
        dripping_body,
        dripping_headers,
        endless_headers,
        endless_body,
    ],
)
async def test_no_receiver_holds_an_attempt_beyond_its_time(behaviour):
    """Field case 99: silent, stopping, dripping and endless receivers all end within the limit + 0.5 s."""
    async with Receiver([behaviour]) as receiver:
        started_s = time.monotonic()
        report = await sender(timeout_s=TIMEOUT_S).attempt(post(receiver.url()))
        elapsed_s = time.monotonic() - started_s
        await receiver.wait_for(lambda: receiver.open_connections == 0)

    assert elapsed_s <= TIMEOUT_S + 0.5
    assert report.outcome != Answered(200)


@pytest.mark.parametrize("behaviour", [endless_body, dripping_body])
async def test_the_status_line_decides_even_if_the_answer_never_ends(behaviour):
    async with Receiver([behaviour]) as receiver:
        report = await sender(timeout_s=TIMEOUT_S).attempt(post(receiver.url()))
    assert report.outcome == Answered(500)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")
async def test_two_hundred_attempts_leave_no_socket_behind():
    """Field case 99: no socket leak, whatever ends the attempt."""
    behaviours = [answer(200), silent, close_without_answer, endless_body, endless_headers]
    async with contextlib.AsyncExitStack() as stack:
        receivers = [await stack.enter_async_context(Receiver([behaviour])) for behaviour in behaviours]
        quick = sender(timeout_s=0.3)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            await asyncio.gather(*(quick.attempt(post(receivers[number % 5].url())) for number in range(100)))
        for receiver in receivers:
            await receiver.wait_for(lambda receiver=receiver: receiver.open_connections == 0)
        # Both ends live here, and a loop closes a descriptor some turns after the connection is over.
        async with asyncio.timeout(20):
            while len(os.listdir("/proc/self/fd")) > before + 2:  # noqa: ASYNC110  the kernel sets no event
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status):
    """Field case 108: no hit on the target; neither body nor signature go elsewhere."""
    async with (
        Receiver([answer(200)]) as inside,
        Receiver([answer(status, {"Location": inside.url()})]) as receiver,
    ):
        report = await sender().attempt(post(receiver.url()))
    assert report.outcome == Answered(status)
    assert inside.connections == 0


async def test_a_hang_up_after_the_request_is_one_attempt_on_both_sides():
    """Field case 100: no hidden second POST, and no connection is used twice."""
    async with Receiver([answer(200), close_without_answer, answer(200)]) as receiver:
        one = sender()
        outcomes = [(await one.attempt(post(receiver.url()))).outcome for _ in range(3)]
    assert outcomes == [Answered(200), Unanswered(TransportError.RESET), Answered(200)]
    assert len(receiver.requests) == receiver.connections == 3


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "2130706433", "0x7f000001", "127.1", "localhost", "0.0.0.0"],
)
async def test_a_literal_inside_address_is_never_connected(host):
    """Field case 109: the POST of a stored odd spelling is refused at the attempt as well."""
    async with Receiver([answer(200)]) as receiver:
        for scheme in ("http", "https"):
            report = await sender(allow_private="none").attempt(post(f"{scheme}://{host}:{receiver.port}/"))
            assert report.outcome == Unanswered(TransportError.BLOCKED_ADDRESS)
    assert receiver.connections == 0


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"]])
async def test_a_name_that_leads_inside_is_refused_at_the_socket(addresses):
    names = Names(addresses)
    report = await sender(allow_private="none", resolver=names).attempt(post("https://evil.example/"))
    assert report.outcome == Unanswered(TransportError.BLOCKED_ADDRESS)
    assert names.asked == 1


async def test_a_rebinding_name_is_judged_again_on_every_attempt():
    """The first look-up leads to an open address, the second inside: only the socket sees that in time."""
    async with Receiver([answer(200)]) as receiver:
        names = Names(["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1"])
        guarded = sender(resolver=names)
        url = receiver.url(host="evil.localhost")
        outcomes = [(await guarded.attempt(post(url))).outcome for _ in range(3)]
    assert outcomes == [Answered(200), Unanswered(TransportError.BLOCKED_ADDRESS), Answered(200)]
    assert names.asked == 3
    assert receiver.connections == 2


async def test_a_blocked_target_looks_the_same_whether_its_port_is_open_or_closed():
    """Field case 110: no port scan through the deliveries."""
    async with Receiver([answer(200)]) as receiver:
        inside = sender(allow_private="none", resolver=Names(["127.0.0.1"]))
        opened = await inside.attempt(post("https://evil.example:8443/"))
        closed = await inside.attempt(post("https://evil.example:8080/"))
        literal = await inside.attempt(post(receiver.url()))
    assert opened.outcome == closed.outcome == literal.outcome == Unanswered(TransportError.BLOCKED_ADDRESS)
    assert max(opened.elapsed_ms, closed.elapsed_ms, literal.elapsed_ms) < 1000
    assert receiver.connections == 0


async def test_a_name_with_one_inside_address_reaches_only_the_other():
    async with Receiver([answer(200)]) as receiver:
        mixed = sender(resolver=Names(["10.0.0.1", "127.0.0.1"]))
        report = await mixed.attempt(post(receiver.url(host="localhost")))
    assert report.outcome == Answered(200)


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async with Receiver([answer(200)]) as proxy, Receiver([answer(204)]) as receiver:
        monkeypatch.setenv("http_proxy", proxy.url())
        monkeypatch.setenv("ALL_PROXY", proxy.url())
        report = await sender().attempt(post(receiver.url()))
    assert report.outcome == Answered(204)
    assert proxy.connections == 0


async def test_no_cookie_travels_to_the_next_attempt():
    async with Receiver([answer(200, {"Set-Cookie": "tenant=other; Path=/"})]) as receiver:
        one = sender()
        await one.attempt(post(receiver.url()))
        await one.attempt(post(receiver.url()))
    assert "cookie" not in receiver.requests[1].headers


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("given", "sent"), [(TRACE, TRACE), (TRACE + "\r\nHost: other", None), ("", None), (None, None)]
)
async def test_a_traceparent_is_sent_only_in_its_exact_form(given, sent):
    """Field case 113: nothing a caller wrote can add a header."""
    async with Receiver([answer(200)]) as receiver:
        await sender().attempt(post(receiver.url(), traceparent=given))
    assert receiver.requests[0].headers.get("traceparent") == sent


async def test_a_shutdown_in_mid_attempt_is_no_outcome():
    """Field case 89: cancelled is not failed; the attempt simply did not end."""
    async with Receiver([silent]) as receiver:
        attempt = asyncio.create_task(sender().attempt(post(receiver.url())))
        await receiver.wait_for_requests(1)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await receiver.wait_for(lambda: receiver.open_connections == 0)


async def test_a_certificate_nobody_vouches_for_is_a_tls_failure(certificate):
    """Field case 89: self-signed has its own code."""
    async with Receiver([answer(200)], tls=server_tls(certificate)) as receiver:
        report = await sender().attempt(post(receiver.url()))
    assert report.outcome == Unanswered(TransportError.TLS)
    assert receiver.requests == []


async def test_tls_to_a_plain_port_is_a_tls_failure():
    async with Receiver([not_http]) as receiver:
        receiver.script[0].before_reading = True
        report = await sender().attempt(post(f"https://127.0.0.1:{receiver.port}/"))
    assert report.outcome == Unanswered(TransportError.TLS)


async def test_host_and_server_name_are_those_of_the_url(certificate):
    seen: list[str | None] = []
    tls = server_tls(certificate)
    tls.sni_callback = lambda _, name, __: seen.append(name)
    async with Receiver([answer(200)], tls=tls) as receiver:
        trusting = ssl.create_default_context(cafile=certificate[0])
        named = sender(allow_private="all", resolver=Names(["127.0.0.1"]), tls=trusting)
        report = await named.attempt(post(receiver.url(host="hook.example")))
    assert report.outcome == Answered(200)
    assert seen == ["hook.example"]
    assert re.fullmatch(r"hook\.example:\d+", receiver.requests[0].headers["host"])


@pytest.mark.parametrize("answer_bytes", [0, 10, 5_000])
async def test_what_is_heard_of_an_answer_ends_where_it_should_and_holds_no_part_of_a_secret(answer_bytes):
    """Field case 110: also where the limit cuts through a secret that the receiver sends back."""
    text = b"." * max(0, answer_bytes - 20) + SECRET.encode() + b"." * 9_000
    async with Receiver([answer(500, {"Content-Type": "text/plain"}, text)]) as receiver:
        report = await sender(answer_bytes=answer_bytes).attempt(post(receiver.url()))
    assert report.outcome == Answered(500)
    if not answer_bytes:
        assert report.heard is None
        return
    assert len(report.heard.body) <= answer_bytes
    assert SECRET[:8] not in report.heard.body


async def test_headers_that_were_kept_and_may_not_be_sent_are_left_out():
    """Field case 113: even what stands in the store cannot add a line, or take the place of a header of ours."""
    kept = {"X-Good": "blue", "Host": "evil.example", "webhook-signature": "v1,x", "X-Bad": "a\r\nX-Evil: 1",
            "Content-Length": "0", "X: Y": "1", "X-Umlaut": "\u00e4"}  # fmt: skip
    async with Receiver([answer(200)]) as receiver:
        report = await sender().attempt(post(receiver.url(), headers=kept))
    [request] = receiver.requests
    assert report.outcome == Answered(200)
    assert request.headers["x-good"] == "blue"
    assert not {"x-evil", "x-bad", "x", "x-umlaut"} & {*request.headers}
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    Webhook(SECRET).verify(request.body, request.headers)

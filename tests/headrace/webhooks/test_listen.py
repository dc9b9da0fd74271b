"""`headrace webhook listen` between a real stack and an application."""

import signal
import urllib.error
import urllib.request

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from headrace.webhooks.listen import try_to_remove
from tests.headrace.scripted import scripted
from tests.headrace.up_process import Up
from tests.headrace.warm import headrace
from tests.headrace.webhooks.listener import App, HungServer, listening


def post(url: str, body: bytes, headers: dict[str, str] | None = None) -> int:
    request = urllib.request.Request(url, body, headers or {}, method="POST")
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as fault:
        return fault.code


def endpoints(up: Up) -> list[str]:
    return [each["id"] for each in headrace(up, "webhook", "endpoints", "list", "-o", "json").json["data"]]


def attempts_of(up: Up, delivery_id: str, wanted: int) -> list[dict[str, object]]:
    """Read them until there are so many: the attempt is recorded after it was answered."""
    while True:
        found = headrace(up, "webhook", "deliveries", "show", delivery_id, "-o", "json").json["attemptsMade"]
        if len(found) >= wanted:
            return list(found)


def test_a_call_is_passed_on_as_it_came_and_the_applications_answer_is_given_back(up: Up) -> None:
    with App().running() as app, listening(up, "--forward", app.url, "--print-body") as listener:
        app.status = 503
        sent = headrace(up, "webhook", "endpoints", "test", listener.told["endpointId"], "-o", "json").json
        refused = listener.next()
        assert [each["status"] for each in attempts_of(up, sent["id"], 1)] == [503]
        app.status = 200
        headrace(up, "webhook", "deliveries", "redeliver", sent["id"])
        taken = listener.next()
        assert listener.end(signal.SIGINT) == 0

    assert listener.told["endpointId"] not in endpoints(up)
    assert (refused["type"], refused["jobId"], refused["signature"]) == ("webhook.test", sent["jobId"], "valid")
    assert (refused["forward"]["status"], refused["answered"], refused["attempt"]) == (503, 503, 1)
    assert (taken["answered"], taken["attempt"], taken["repeat"]) == (200, 2, False)
    assert taken["lagMs"] >= 0
    for headers, body in app.calls:
        Webhook(listener.told["secret"]).verify(body, headers)
        assert headers["user-agent"].startswith("headrace/")
        assert "accept" not in headers  # nothing was added on the way
        assert body.decode() == taken["body"]


def test_its_endpoint_is_gone_when_it_was_told_to_end(up: Up) -> None:
    with listening(up) as listener:
        assert listener.told["endpointId"] in endpoints(up)

        assert listener.end(signal.SIGTERM) == 0  # of Ctrl-C the test above

    assert listener.told["endpointId"] not in endpoints(up)


def test_its_endpoint_is_gone_when_nobody_reads_what_it_prints(up: Up) -> None:
    with listening(up) as listener:
        assert listener.process.stdout is not None
        listener.process.stdout.close()

        post(listener.told["url"], b"{}")

        listener.process.wait(60)
    assert listener.told["endpointId"] not in endpoints(up)


@pytest.mark.parametrize(
    ("statuses", "is_gone"), [([204], True), ([404], True), ([503, 204], True), ([503, 503], False), ([401], False)]
)
async def test_an_endpoint_is_removed_although_the_server_is_away_for_a_moment(
    statuses: list[int], is_gone: bool
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.Response(status=statuses[len(asked) - 1])

    async with scripted(answer) as client:
        why_not = await try_to_remove(client, "wh_1", [0.0])

    assert (why_not is None) == is_gone
    assert asked == ["DELETE /v1/webhook-endpoints/wh_1"] * len(statuses)


def test_a_second_signal_does_not_wait_for_the_server(up: Up) -> None:
    with HungServer().running() as server, listening(up, "--url", server.url) as listener:
        listener.process.send_signal(signal.SIGINT)
        assert server.asked.wait(60)
        listener.process.send_signal(signal.SIGINT)

        assert listener.process.wait(60) == 1
        server.release.set()
        assert listener.process.stderr is not None
        told = listener.process.stderr.read()

    assert told == "wh_1 may still be there; `headrace webhook endpoints delete wh_1` removes it\n"


def test_what_nobody_signed_is_refused_and_passed_on_to_nobody(up: Up) -> None:
    with App().running() as app, listening(up, "--forward", app.url, "--count", "2") as listener:
        assert post(listener.told["url"], b'{"type":"job.completed\\u001b[2J"}') == 400
        told = listener.next()
        now = {"webhook-id": "evt_1", "webhook-timestamp": "1", "webhook-signature": "v1"}
        assert post(listener.told["url"], b"\xff", now) == 400
        assert listener.next()["signature"] == "INVALID"

        assert listener.process.wait(60) == 1

    assert (told["signature"], told["type"], told["fault"]) == ("INVALID", None, "Missing required headers")
    assert app.calls == []


def test_a_jobs_own_webhook_is_checked_with_the_tenants_secret(up: Up) -> None:
    with listening(up, "--no-endpoint", "--count", "1") as listener:
        hook = ("--webhook-url", listener.told["url"], "--webhook-event", "job.completed")
        job = headrace(up, "jobs", "submit", "x", "--model", "echo", *hook, "-o", "json").json
        told = listener.next()

        assert listener.process.wait(60) == 0

    assert (told["type"], told["jobId"], told["signature"]) == ("job.completed", job["id"], "valid")


def test_an_application_that_is_not_there_is_a_502_and_a_line_that_says_so(up: Up) -> None:
    with listening(up, "--forward", "http://127.0.0.1:1/hook", "--count", "1") as listener:
        sent = headrace(up, "webhook", "endpoints", "test", listener.told["endpointId"], "-o", "json").json
        told = listener.next()
        assert listener.process.wait(60) == 0

    assert (told["answered"], sent["jobId"]) == (502, told["jobId"])
    assert "127.0.0.1:1" in told["forward"]["error"]


def test_what_it_cannot_do_is_said_at_once(up: Up) -> None:
    assert headrace(up, "webhook", "listen", "--forward", "localhost:3000").exit_code == 2
    assert headrace(up, "webhook", "listen", "--secret-file", "x").exit_code == 2
    assert headrace(up, "webhook", "listen", "--event", "no.such").exit_code == 2
    blocked = headrace(up, "webhook", "listen", "--reach-as", "http://10.0.0.1/")
    assert (blocked.exit_code, "--reach-as" in blocked.err) == (2, True)
    taken = headrace(up, "webhook", "listen", "--port", up.ready["url"].rpartition(":")[2])
    assert (taken.exit_code, "cannot listen" in taken.err) == (7, True)
    assert headrace(up, "webhook", "listen", "--host", "no.such.host.invalid").exit_code == 7
    assert headrace(up, "webhook", "listen", "--url", "http://127.0.0.1:1").exit_code == 7

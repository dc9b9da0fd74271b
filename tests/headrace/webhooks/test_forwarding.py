"""What an application answers goes back as it is: the sender goes by it."""

from aiohttp import web
from multidict import CIMultiDict

from headrace.webhooks.forwarding import ANSWER_BYTES, Forwarder, passed_on
from headrace.webhooks.receiver import Call
from tests.headrace.scripted import scripted

CALL = Call({"Host": "elsewhere", "webhook-id": "evt_1"}, b"{}", None)


async def test_status_pause_and_a_bounded_body_of_an_answer_go_back() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.host != "elsewhere"
        return web.Response(status=429, headers={"Retry-After": "7", "Set-Cookie": "a=b"}, text="x" * 2 * ANSWER_BYTES)

    async with scripted(answer) as client, Forwarder(f"{client.url}/hook") as forwarder:
        reply, told = await forwarder.forward(CALL)

    assert (reply.status, reply.headers["Retry-After"], len(reply.body)) == (429, "7", ANSWER_BYTES)
    assert (told["status"], "Set-Cookie" in reply.headers) == (429, False)


async def test_a_redirect_is_an_answer_like_another() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": "/elsewhere"})

    async with scripted(answer) as client, Forwarder(f"{client.url}/hook") as forwarder:
        assert (await forwarder.forward(CALL))[0].status == 301


def test_repeated_headers_are_passed_on_and_those_of_one_connection_are_not() -> None:
    came = CIMultiDict([("X-Shop", "1"), ("x-shop", "2"), ("Transfer-Encoding", "chunked"), ("Connection", "close")])

    assert [*passed_on(came).items()] == [("X-Shop", "1"), ("x-shop", "2")]

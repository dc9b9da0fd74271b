"""Which of a tenant's deliveries are sent again, page by page."""

from aiohttp import web

from headrace.webhooks.deliveries import Own
from tests.headrace.scripted import scripted

PAGES = [["dlv_b_1_x_1", "dlv_b_1_x_0"], ["dlv_b_1_w_0", "dlv_a_9_x_10"], ["dlv_a_9_x_1", "dlv_a_9_x_0"]]


async def redelivered(own: Own, states: dict[str, str], refused: str = "") -> tuple[dict[str, object], list[str]]:
    posted: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            posted.append(request.path.split("/")[3])
            if posted[-1] == refused:
                return web.json_response({"code": "not_redeliverable"}, status=409)
            return web.json_response({}, status=202)
        number = int(request.query.get("cursor", "0"))
        data = [{"id": each, "state": states.get(each, "delivered")} for each in PAGES[number]]
        has_more = number + 1 < len(PAGES)
        return web.json_response({"data": data, "hasMore": has_more, "nextCursor": str(number + 1)})

    async with scripted(answer) as client:
        return await own.redeliver(client), posted


async def test_without_a_state_it_is_what_was_given_up_or_held() -> None:
    told, posted = await redelivered(Own({}, dry_run=False), {"dlv_b_1_w_0": "held", "dlv_a_9_x_1": "exhausted"})

    assert posted == ["dlv_b_1_w_0", "dlv_a_9_x_1"]
    assert (told["matched"], told["redelivered"], told["failed"]) == (2, 2, 0)


async def test_of_several_generations_one_is_sent_again_or_each_call_would_double_them() -> None:
    told, posted = await redelivered(Own({"state": "delivered"}, dry_run=False), {}, refused="dlv_b_1_w_0")

    assert posted == ["dlv_b_1_x_1", "dlv_b_1_w_0", "dlv_a_9_x_10"]
    assert told["failures"] == [{"id": "dlv_b_1_w_0", "code": "not_redeliverable"}]


async def test_a_dry_run_writes_nothing() -> None:
    told, posted = await redelivered(Own({"state": "delivered"}, dry_run=True), {})

    assert (posted, told["matched"], told["redelivered"]) == ([], 3, 0)

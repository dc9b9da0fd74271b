"""Deliveries through the API: shown with every attempt, held, sent again, counted; across tenants for the operator."""

from datetime import UTC, datetime

import orjson
import pytest
from standardwebhooks import Webhook

from contracts.deliveries import KEEP_DEAD_S, Ask, Attempted, PlannedDelivery, Settlement
from contracts.endpoints import endpoint_secret
from contracts.ids import delivery_id, event_id, mint_job_id
from contracts.store import Word, keys
from services.ingest.handlers import admin_webhooks
from tests.ingest.api import Api
from tests.ingest.webhooks import PATH, Hooks, hooks_of

POOL, DELIVERIES, ADMIN = "default", "/v1/webhook-deliveries", "/admin/v1/webhook-deliveries"
LONG_AGO, FAR_AHEAD = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
LATER_MS = 3_600_000


class Sent:
    """Deliveries of one endpoint as the notifier would make and settle them."""

    def __init__(self, hooks: Hooks, endpoint_id: str, tenant: str = "t_a") -> None:
        self.hooks, self.name, self.tenant = hooks, endpoint_id.removeprefix("wh_"), tenant
        self.store = hooks.api.store.deliveries
        self.made = 0

    async def plan(self, count: int = 1, job_id: str = "", *, strict: bool = False, due_ms: int = 0) -> list[str]:
        """Plan deliveries and return their ids, of a job each, or all of one."""
        planned = []
        for sequence in range(1, count + 1):
            self.made += 1
            of = job_id or mint_job_id(1_764_457_200_000 + self.made, hash(self.name) % 10**6, "aa")
            n = sequence if job_id else 1
            fields = {"event": "job.completed", "message": event_id(of, n), "body": f'{{"n":{self.made}}}'}
            made_id = delivery_id(of, n, self.name, 0)
            planned.append(PlannedDelivery(made_id, fields, self.name, self.tenant, of, n, due_ms, strict=strict))
        await self.store.plan(POOL, "", planned, [])
        return [each.id for each in planned]

    async def attempt(self, status: int, *, dead: bool = False, next_ms: int | None = None) -> list[str]:
        """Claim what is due and settle it as answered with this status; returns what was claimed."""
        _, claimed = await self.store.claim(POOL, [Ask(self.name, 100, 100)], 60_000)
        for each in claimed:
            number = int(each.fields["try"]) + 1
            seen = {"atMs": 1_764_457_200_000, "ms": 7, "status": status, "outcome": f"http_{status}"}
            is_ok = status < 300
            state = {"state": "delivered"} if is_ok else {"state": "exhausted"} if dead else {}
            fields = {**state, "outcome": f"http_{status}", f"a:{number}": orjson.dumps(seen).decode()}
            made = Attempted(is_ok, f"{status // 100}xx", 7)
            due = None if is_ok or dead else next_ms
            settlement = Settlement(each.id, self.name, number, fields, made, due, KEEP_DEAD_S, dead and not is_ok)
            assert (await self.store.settle(POOL, settlement)).word is Word.APPLIED
        return [each.id for each in claimed]

    async def states(self) -> dict[str, int]:
        """Count the tenant's deliveries by state, as the API shows them."""
        counts: dict[str, int] = {}
        for each in (await self.hooks.get(DELIVERIES + "?limit=100")).body["data"]:
            counts[each["state"]] = counts.get(each["state"], 0) + 1
        return counts


@pytest.fixture
async def hooks(api: Api) -> Hooks:
    return await hooks_of(api)


async def test_nothing_goes_out_once_an_endpoint_was_switched_off(hooks: Hooks) -> None:
    """Field case 90: 20 waiting retries are held when the call returns; switched on and recovered they go out once."""
    endpoint_id = await hooks.endpoint()
    sent = Sent(hooks, endpoint_id)
    ids = await sent.plan(20)
    later_ms = hooks.api.service.context.now_ms() + LATER_MS
    assert sorted(await sent.attempt(500, next_ms=later_ms)) == ids

    off = await hooks.do(endpoint_id, "disable")
    held = await sent.states()
    refused = [await hooks.do(endpoint_id, "recover", since=LONG_AGO), await hooks.do(endpoint_id, "test")]
    again = await hooks.call("POST", f"{DELIVERIES}/{ids[0]}/redeliver")
    assert await sent.attempt(200) == []
    on = await hooks.do(endpoint_id, "enable")
    await sent.store.mend(POOL, sent.name)  # as each courier does once it has read of the change
    still_held = await sent.states()
    recovered = await hooks.do(endpoint_id, "recover", since=LONG_AGO)
    went = await sent.attempt(200)

    assert (off.body["disabled"], on.body["disabled"]) == (True, False)
    assert (held, still_held) == ({"held": 20}, {"held": 20})
    assert {answer.code for answer in (*refused, again)} == {"endpoint_disabled"}
    assert (recovered.body["recovered"], recovered.body["state"]) == (20, "completed")
    assert (sorted(went), await sent.attempt(200), await sent.states()) == (ids, [], {"delivered": 20})
    assert (await hooks.do(endpoint_id, "recover", since=LONG_AGO)).body["recovered"] == 0


async def test_what_waits_for_a_deleted_endpoint_ends_at_once_and_is_not_tried(hooks: Hooks) -> None:
    """Field case 93: deliveries queued before the endpoint was deleted end as `endpoint_deleted`; nothing is due."""
    endpoint_id = await hooks.endpoint()
    sent = Sent(hooks, endpoint_id)
    ids = await sent.plan(5)
    await hooks.call("DELETE", f"{PATH}/{endpoint_id}")

    assert await sent.states() == {"endpoint_deleted": 5}
    assert await sent.attempt(200) == []
    assert (await sent.store.due_endpoints(POOL, 10)).endpoints == ()
    refused = await hooks.call("POST", f"{DELIVERIES}/{ids[0]}/redeliver")
    assert (refused.status, refused.code) == (409, "not_redeliverable")


async def test_each_attempt_is_shown_with_what_came_of_it_and_what_comes_next(hooks: Hooks) -> None:
    """Field case 98: a log to look at: each attempt of a job's webhooks with time, status, latency and next attempt."""
    api, endpoint_id = hooks.api, await hooks.endpoint()
    sent, job_id = Sent(hooks, endpoint_id), await hooks.api.job()
    [made] = await sent.plan(1, job_id)
    next_ms = api.service.context.now_ms() + LATER_MS
    await sent.attempt(503, next_ms=next_ms)

    [shown] = (await hooks.get(f"/v1/jobs/{job_id}/deliveries")).body["data"]
    details = (await hooks.get(f"{DELIVERIES}/{made}")).body
    attempts = (await hooks.get(f"{DELIVERIES}/{made}/attempts")).body["data"]

    assert (shown["id"], shown["endpointId"], shown["jobId"]) == (made, endpoint_id, job_id)
    assert (shown["state"], shown["attempts"], shown["lastOutcome"]) == ("waiting", 1, "http_503")
    assert shown["nextAttemptAt"] is not None
    assert shown["attemptsMade"] == attempts
    assert [(each["attempt"], each["status"], each["ms"], each["at"][:4]) for each in attempts] == [(1, 503, 7, "2025")]
    assert (details["payload"], details["messageId"]) == ('{"n":1}', event_id(job_id, 1))
    assert (await hooks.get(f"/v1/jobs/{await api.job()}/deliveries")).body["data"] == []


async def test_the_last_try_ends_a_delivery_and_it_can_be_sent_again_with_its_history(hooks: Hooks) -> None:
    """Field case 106: three tries are three attempts, then it is given up and nothing is planned; sent again it goes
    on counting, with the same message id.
    """
    sent = Sent(hooks, await hooks.endpoint())
    [made] = await sent.plan()
    path = f"{DELIVERIES}/{made}"
    for is_last in (False, False, True):
        await sent.attempt(403, dead=is_last, next_ms=1)
    given_up = (await hooks.get(path)).body
    again = await hooks.call("POST", path + "/redeliver")
    await sent.attempt(200)
    done = (await hooks.get(path)).body
    copy = await hooks.call("POST", path + "/redeliver")
    await sent.attempt(200)
    attempts = (await hooks.get(path + "/attempts")).body["data"]
    copied = (await hooks.get(copy.headers["location"])).body

    assert (given_up["state"], given_up["attempts"], given_up["nextAttemptAt"]) == ("exhausted", 3, None)
    assert given_up["endedAt"] is not None
    assert (again.status, again.body["id"], again.body["state"]) == (202, made, "waiting")
    assert (done["state"], done["attempts"]) == ("delivered", 4)
    assert [each["status"] for each in attempts] == [403, 403, 403, 200]
    assert (copy.status, copy.body["id"]) == (202, made[:-1] + "1")
    assert (copied["messageId"], copied["payload"]) == (done["messageId"], done["payload"])
    assert "webhook.redelivery_requested" in str(await hooks.api.store.client.xrange(keys.log(POOL)))


async def test_what_waits_for_an_earlier_event_of_its_job_cannot_overtake_it(hooks: Hooks) -> None:
    sent = Sent(hooks, await hooks.endpoint(ordering="strict"))
    job_id = await hooks.api.job()
    first, second = await sent.plan(2, job_id, strict=True, due_ms=hooks.api.service.context.now_ms() + LATER_MS)

    blocked = await hooks.call("POST", f"{DELIVERIES}/{second}/redeliver")
    hurried = await hooks.call("POST", f"{DELIVERIES}/{first}/redeliver")

    assert (blocked.status, blocked.code) == (409, "not_redeliverable")
    assert (hurried.status, await sent.attempt(200)) == (202, [first])


async def test_lists_are_filtered_and_paged_and_foreign_deliveries_are_never_met(hooks: Hooks) -> None:
    """Field cases 10 and 98: filters that are misspelt are told; another tenant's delivery is answered like none."""
    one, two = await hooks.endpoint(), await hooks.endpoint()
    mine, also = Sent(hooks, one), Sent(hooks, two)
    ids = await mine.plan(3)
    await mine.attempt(403, dead=True)
    more = await also.plan(2)
    await hooks.api.tenant("t_b")
    other = await hooks_of(hooks.api, "t_b")

    async def listed(query: str, client: Hooks = hooks) -> list[str]:
        return [each["id"] for each in (await client.get(f"{DELIVERIES}?{query}")).body["data"]]

    assert sorted(await listed("")) == sorted([*ids, *more])
    assert sorted(await listed(f"endpointId={one}")) == sorted(ids)
    assert sorted(await listed("state=exhausted&eventType=job.completed")) == sorted(ids)
    assert await listed("state=delivered") == await listed("eventType=job.failed") == []
    assert await listed(f"since={FAR_AHEAD}") == await listed(f"until={LONG_AGO}") == []
    job_id = "job_" + ids[0].split("_")[1]
    assert await listed(f"jobId={job_id}") == [each for each in (*ids, *more) if each.split("_")[1] == job_id[4:]]
    page = await hooks.get(DELIVERIES + "?limit=2&state=exhausted")
    rest = await hooks.get(f"{DELIVERIES}?limit=2&state=exhausted&cursor={page.body['nextCursor']}")
    assert (page.body["hasMore"], [len(each.body["data"]) for each in (page, rest)]) == (True, [2, 1])
    assert (await hooks.get(f"{DELIVERIES}?cursor={page.body['nextCursor']}")).code == "bad_cursor"
    for wrong in ("state=lost", "stat=held", "since=yesterday", "state=held&state=gone", "tenantId=t_b", "jobId=x"):
        assert (await hooks.get(f"{DELIVERIES}?{wrong}")).code == "bad_parameter"

    assert [each["id"] for each in (await hooks.get(f"/v1/jobs/{job_id}/deliveries")).body["data"]], "a forgotten job"
    assert await listed("", other) == []
    assert (await other.get(f"/v1/jobs/{job_id}/deliveries")).code == "job_not_found"
    unknown = delivery_id(mint_job_id(1, 2, "aa"), 1, mine.name, 0)
    for wrong in (ids[0], unknown, ids[0][:-1], ids[0] + "0", "dlv_x", f"{ids[0]}%20"):
        answers = [
            await other.get(f"{DELIVERIES}/{wrong}"), await other.get(f"{DELIVERIES}/{wrong}/attempts"),
            await other.call("POST", f"{DELIVERIES}/{wrong}/redeliver"),
        ]  # fmt: skip
        assert {(answer.status, answer.code) for answer in answers} == {(404, "delivery_not_found")}


async def test_a_test_is_a_delivery_like_any_other_and_says_that_it_is_one(hooks: Hooks) -> None:
    """The reference library verifies what is sent, in each format and with each secret that signs."""
    for form in ("standard", "flat", "cloudevents"):
        endpoint_id = await hooks.endpoint(format=form)
        await hooks.do(endpoint_id, "rotate-secret")
        made = await hooks.do(endpoint_id, "test")
        shown = (await hooks.get(made.headers["location"])).body
        private = await hooks.api.store.directory.private(endpoint_secret(endpoint_id))
        assert private is not None

        assert (made.status, made.body["state"], made.body["eventType"]) == (202, "waiting", "webhook.test")
        payload = orjson.loads(shown["payload"])
        told = payload["data"] if form == "cloudevents" else payload
        assert told["jobId"].startswith("job_")
        assert (told["status"], told["progress"], told["resultUrl"]) == ("completed", 100, None)
        assert form == "flat" or told["data"] == {"test": True, "endpointId": endpoint_id}
        assert form != "flat" or len(payload) == 4
        assert form != "cloudevents" or (payload["id"], payload["subject"]) == (shown["messageId"], told["jobId"])
        for secret in private.signing(hooks.api.service.context.now_ms()):
            hook, now = Webhook(secret), datetime.now(UTC)
            signature = hook.sign(shown["messageId"], now, shown["payload"])
            head = {"webhook-id": shown["messageId"], "webhook-signature": signature}
            assert hook.verify(shown["payload"], head | {"webhook-timestamp": str(int(now.timestamp()))})


async def test_a_test_judges_the_url_again_and_plans_nothing_where_it_may_not_go(hooks: Hooks) -> None:
    """Field case 109: what was allowed once and is not any more is 422 at the test, too, and nothing is planned."""
    endpoint_id = await hooks.endpoint()
    await hooks.api.admin("PATCH", "/admin/v1/tenants/t_a", json={"webhookHosts": ["else.example"]})

    refused = await hooks.do(endpoint_id, "test")

    assert (refused.status, refused.code, refused.pointers) == (422, "webhook_url_not_allowed", ["/url"])
    assert (await hooks.get(DELIVERIES)).body["data"] == []


async def test_a_backfill_is_asked_for_once_in_every_pool_and_shown_with_the_figures(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint()
    asked = await hooks.do(endpoint_id, "backfill", since=LONG_AGO, until=FAR_AHEAD, reason="new receiver")
    wrong = await hooks.do(endpoint_id, "backfill", since=FAR_AHEAD, until=LONG_AGO)
    stats = (await hooks.get(f"{PATH}/{endpoint_id}/stats")).body

    assert (asked.status, asked.body["state"], wrong.pointers) == (202, "in_progress", ["/until"])
    for pool in hooks.api.service.context.pools:
        [backfill] = await hooks.api.store.backfills.all(pool)
        assert (backfill.id, backfill.endpoint_id) == (asked.body["id"], endpoint_id)
        assert "new receiver" in str(await hooks.api.store.client.xrange(keys.log(pool)))
    [shown] = stats["backfills"]
    assert (shown["id"], shown["state"], shown["planned"]) == (asked.body["id"], "in_progress", 0)


async def test_the_figures_of_an_endpoint_tell_how_it_does(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint()
    sent, path = Sent(hooks, endpoint_id), f"{PATH}/{endpoint_id}/stats"
    idle = (await hooks.get(path)).body
    await sent.plan(3)
    await sent.attempt(200)
    await sent.plan(1)
    await sent.attempt(500, dead=True)
    await sent.plan(2)
    busy = (await hooks.get(path)).body

    assert (idle["attempts"], idle["successRate"], idle["p95Ms"], idle["circuit"]) == (0, None, None, "closed")
    assert (busy["delivered"], busy["failed"], busy["successRate"], busy["p95Ms"]) == (3, 1, 0.75, 10)
    assert (busy["consecutiveFailures"], busy["waiting"], busy["givenUpOrHeld"]) == (1, 2, 1)
    assert None not in (busy["failingSince"], busy["lastSuccessAt"], busy["oldestDueAt"])


async def test_the_operator_sees_all_tenants_and_sends_again_what_a_filter_means(hooks: Hooks) -> None:
    """Field case 104: what is redriven is redriven: nothing in a dry run, all of it afterwards, with its reason."""
    api, one = hooks.api, await hooks.endpoint(headers={"X-A": "s3cret"})
    await api.tenant("t_b")
    other = await hooks_of(api, "t_b")
    two = await other.endpoint()
    sent = [Sent(hooks, one), Sent(other, two, "t_b")]
    for each in sent:
        await each.plan(2)
        await each.attempt(500, dead=True)
        await each.plan(1)
        await each.attempt(200)

    endpoints = await api.admin("GET", "/admin/v1/webhook-endpoints")
    of_b = await api.admin("GET", "/admin/v1/webhook-endpoints?tenantId=t_b")
    pages, cursor = [], ""
    while True:
        page = await api.admin("GET", f"{ADMIN}?limit=4{cursor}")
        pages += [(each["tenantId"], each["state"]) for each in page.body["data"]]
        if not page.body["hasMore"]:
            break
        cursor = f"&cursor={page.body['nextCursor']}"
    asked = {"filter": {"tenantId": "t_b"}, "reason": "receiver was down"}
    dry = await api.admin("POST", ADMIN + "/redeliver", json=asked | {"dryRun": True})
    before = await other.get(DELIVERIES + "?state=exhausted")
    real = await api.admin("POST", ADMIN + "/redeliver", json=asked)

    assert b"t0ken" not in endpoints.raw
    assert b"s3cret" not in endpoints.raw
    assert [(each["id"], each["tenantId"]) for each in endpoints.body["data"]] == [(one, "t_a"), (two, "t_b")]
    assert [each["id"] for each in of_b.body["data"]] == [two]
    assert sorted(pages) == [(t, s) for t in ("t_a", "t_b") for s in ("delivered", "exhausted", "exhausted")]
    assert (dry.body["matched"], dry.body["redelivered"], len(before.body["data"])) == (2, 0, 2)
    assert (real.body["matched"], real.body["redelivered"], real.body["state"]) == (2, 2, "completed")
    assert (len(await sent[1].attempt(200)), await sent[0].attempt(200)) == (2, [])
    assert "receiver was down" in str(await api.store.client.xrange(keys.log(POOL)))
    wrong = await api.admin("POST", ADMIN + "/redeliver", json={"filter": {"jobId": "x", "endpointId": "y"}})
    assert (wrong.status, wrong.pointers) == (422, ["/filter/endpointId", "/filter/jobId"])
    await other.do(two, "disable")
    await api.admin("POST", ADMIN + "/redeliver", json={"filter": {"tenantId": "t_b", "state": "delivered"}})
    failed = await api.admin("POST", ADMIN + "/redeliver", json={"filter": {"tenantId": "t_b", "state": "delivered"}})
    assert {each["code"] for each in failed.body["failures"]} == {"endpoint_disabled"}
    assert (await hooks.call("GET", ADMIN)).code == "missing_scope"


async def test_sending_all_of_a_filter_again_and_again_does_not_double_them(hooks: Hooks) -> None:
    """Each generation of a delivered one is a delivery, too: of those of one event, a call sends one."""
    await hooks.api.tenant("t_b")
    other = await hooks_of(hooks.api, "t_b")
    sent = Sent(other, await other.endpoint(), "t_b")
    await sent.plan(2)
    await sent.attempt(200)
    asked = {"filter": {"tenantId": "t_b", "state": "delivered"}}
    for _ in range(3):
        again = await hooks.api.admin("POST", ADMIN + "/redeliver", json=asked)
        assert (again.body["matched"], len(await sent.attempt(200))) == (2, 2)


async def test_a_list_across_many_tenants_goes_on_where_it_stopped(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_webhooks, "MOST_TENANTS", 1)
    for tenant in ("t_b", "t_c"):
        await hooks.api.tenant(tenant)
    other = await hooks_of(hooks.api, "t_c")
    await Sent(other, await other.endpoint(), "t_c").plan(1)
    seen, cursor = [], ""
    for _ in range(3):
        page = (await hooks.api.admin("GET", f"{ADMIN}?limit=5{cursor}")).body
        seen.append(len(page["data"]))
        cursor = f"&cursor={page['nextCursor']}"

    assert (seen, page["hasMore"]) == ([0, 0, 1], False)

"""The notifier against a real store and a real receiver."""

import asyncio
import itertools
import time

import orjson
from standardwebhooks import Webhook

from contracts import events as ev
from contracts import ids
from contracts.api import WebhookPayload
from contracts.job import FIELDS
from contracts.signed_url import sign_path
from contracts.store import Store, keys
from services.notifier.service import Notifier
from tests.harness.proxy import Proxy, Rule
from tests.notifier.hooked import (
    POOL,
    PUBLIC_URL,
    SECRET,
    TENANT,
    admit,
    append,
    attempts,
    completed,
    finish,
    log_of,
    notifier,
    settled,
    started,
    until,
)
from tests.notifier.receiver import Receiver, after, answer, silent
from tests.servers import Server


async def test_a_finished_job_is_told_with_signature_result_and_the_state_of_its_moment(store, store_url):
    """Promise 5: each subscribed event, signed, with the event's id. Planned late, it still says what was then."""
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url())
        await finish(store, job_id, result={"seed": 7})
        async with notifier(store_url):
            requests = await receiver.wait_for_requests(2)
            await until(lambda: settled(store))

    bodies = [Webhook(SECRET).verify(request.body, request.headers) for request in requests]
    by_type = {body["type"]: body for body in bodies}
    assert sorted(by_type) == ["job.completed", "job.started"]
    assert {request.headers["webhook-id"] for request in requests} == {
        ids.event_id(job_id, 2),
        ids.event_id(job_id, 3),
    }
    begun, done = by_type["job.started"], by_type["job.completed"]
    assert (begun["status"], begun["progress"], begun["resultUrl"]) == ("in_progress", 0, None)
    assert (done["jobId"], done["status"], done["progress"]) == (job_id, "completed", 100)
    path = f"/v1/artifacts/{ids.artifact_id(job_id, 1, 0)}/content"
    secret = (await store.directory.secret("urls")).encode()
    assert done["resultUrl"] == PUBLIC_URL + sign_path(secret, path, 1764457209)
    assert done["data"]["artifacts"][0]["url"] == done["resultUrl"]
    assert done["data"]["result"] == {"seed": 7}
    assert (done["data"]["userId"], done["data"]["metadata"], done["data"]["error"]) == ("u_42", {"cart": "9"}, None)
    for body in bodies:
        WebhookPayload.model_validate(body)


async def test_each_attempt_is_an_event_and_the_delivered_one_is_settled(store, store_url):
    async with Receiver([answer(204)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))

    [attempted] = await attempts(store)
    assert (attempted.job_id, attempted.event_type, attempted.attempt) == (job_id, "job.created", 1)
    assert (attempted.outcome, attempted.status, attempted.next_at_ms) == ("status_204", 204, None)
    assert (attempted.tenant_id, attempted.model) == (TENANT, "echo@1")  # usage counts it by them
    row = await store.deliveries.read(POOL, attempted.delivery_id)
    assert (row["state"], row["try"], row["body"].encode()) == ("delivered", "1", receiver.requests[0].body)
    seen = orjson.loads(row["a:1"])
    assert (seen["status"], seen["outcome"]) == (204, "status_204")


async def test_a_delivery_is_tried_to_the_end_of_its_plan_and_then_kept_as_a_dead_letter(store, store_url):
    """Field cases 105 and 106: attempts 2 and 3 really arrive, exactly 3 in all, the last leads to exhausted."""
    async with Receiver([answer(403)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url, delays_s=(0, 0.3, 0.6)):
            requests = await receiver.wait_for_requests(3)
            await until(lambda: settled(store))

    assert [request.headers["webhook-attempt"] for request in requests] == ["1", "2", "3"]
    assert {request.headers["webhook-id"] for request in requests} == {ids.event_id(job_id, 1)}
    assert len({request.body for request in requests}) == 1
    for request in requests:
        Webhook(SECRET).verify(request.body, request.headers)
    gaps_s = [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(requests)]
    assert gaps_s[0] >= 0.24
    assert gaps_s[1] >= 0.48
    assert [attempted.outcome for attempted in await attempts(store)] == ["status_403"] * 3
    assert (await attempts(store))[2].next_at_ms is None
    [exhausted] = [entry.event() for entry in await log_of(store, "webhook.exhausted")]
    assert (exhausted.attempts, exhausted.outcome, exhausted.job_id) == (3, "status_403", job_id)
    row = await store.deliveries.read(POOL, exhausted.delivery_id)
    assert (row["state"], row["body"].encode()) == ("exhausted", requests[0].body)


async def test_a_receiver_that_is_gone_is_told_nothing_more(store, store_url):
    """Field case 101: 410 ends the delivery at once, as a dead letter."""
    async with Receiver([answer(410)]) as receiver:
        await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url):
            await until(lambda: log_of(store, "webhook.exhausted"))
    assert len(receiver.requests) == 1
    assert await settled(store)


async def test_a_redirect_is_recorded_as_one_and_never_followed(store, store_url):
    """Field case 108: 0 hits on the target; recorded as `redirect`."""
    async with (
        Receiver([answer(200)]) as inside,
        Receiver([answer(307, {"Location": inside.url()})]) as receiver,
    ):
        await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url, delays_s=(0,)):
            await until(lambda: log_of(store, "webhook.exhausted"))
    assert [attempted.outcome for attempted in await attempts(store)] == ["redirect"]
    assert inside.connections == 0


async def test_a_connection_that_fails_follows_the_plan(store, store_url):
    """Field case 89: refused is an attempt with its code, and the next one comes."""
    async with Receiver([answer(200)]) as receiver:
        url = receiver.url()
        port = receiver.port
    await admit(store, url, events=["job.created"])
    async with notifier(store_url, delays_s=(0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3)):
        await until(lambda: log_of(store, "webhook.attempted"))
        async with Receiver([answer(200)], port=port) as receiver:
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    outcomes = [attempted.outcome for attempted in await attempts(store)]
    assert outcomes[0] == "refused"
    assert outcomes[-1] == "status_200"


async def test_only_what_is_subscribed_to_is_sent(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.completed"])
        await append(store, job_id, started(), hooked=["job.completed"])
        await append(store, job_id, ev.JobProgress(progress=50), hooked=["job.completed"])
        await append(store, job_id, completed(job_id), hooked=["job.completed"])
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    assert [orjson.loads(request.body)["type"] for request in receiver.requests] == ["job.completed"]


async def test_a_job_that_never_started_is_never_told_as_started(store, store_url):
    """Field case 97: the webhooks are the log's events, so no `job.started` without one in the log."""
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url())
        await append(store, job_id, ev.JobExpired(start_by_at_ms=1, waited_ms=2))
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    [body] = [orjson.loads(request.body) for request in receiver.requests]
    assert (body["type"], body["status"], body["data"]["startByAt"]) == (
        "job.expired",
        "expired",
        "1970-01-01T00:00:00.001Z",
    )


async def test_a_failed_attempt_is_told_with_the_text_of_its_error(store, store_url):
    failed = ev.JobAttemptFailed(
        error=ev.ErrorFacts(code="out_of_memory", retryable=True), attempt=1, will_retry=True, next_attempt_at_ms=1000
    )
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.attempt_failed"])
        await append(store, job_id, started(), hooked=[])
        await store.client.append(
            keys.body(POOL, job_id), b'\n{"error":{"code":"out_of_memory","message":"no room","attempt":1}}'
        )
        await append(store, job_id, failed, hooked=["job.attempt_failed"])
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
    body = orjson.loads(receiver.requests[0].body)
    assert (body["status"], body["data"]["nextAttemptAt"]) == ("queued", "1970-01-01T00:00:01.000Z")
    assert body["data"]["error"] == {
        "code": "out_of_memory",
        "retryable": True,
        "message": "no room",
        "attempt": 1,
    }


async def test_a_result_of_five_megabytes_stays_out_of_the_webhook(store, store_url):
    """Field case 107: bounded, valid JSON, a reference, `truncated`."""
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.completed"])
        await finish(store, job_id, result={"text": "é" * 2_500_000})
        async with notifier(store_url):
            requests = await receiver.wait_for_requests(1)
    assert len(requests[0].body) <= 20_000
    body = Webhook(SECRET).verify(requests[0].body, requests[0].headers)
    assert (body["data"]["truncated"], body["data"]["omitted"]) == (True, ["result"])
    assert body["resultUrl"]


async def test_a_webhook_whose_planning_is_cut_off_after_its_event_was_written_goes_out(store, store_server: Server):
    """Field case 94: the event is in, the next write about it fails; no sweep is needed, the event is still pending."""
    proxy = Proxy(store_server.socket)
    await proxy.open()
    failing = proxy.cut_at(b"hr_plan_")
    async with Receiver([answer(200)]) as receiver, notifier(proxy.url):
        await finish(store, await admit(store, receiver.url(), events=["job.completed"]))
        await until(lambda: has_failed(failing, 8))  # the store's own repeats of a call are used up, too
        assert await store.client.zcard(keys.due(POOL)) == 0
        failing.lift()
        await receiver.wait_for_requests(1)
        await until(lambda: settled(store))
    await proxy.close()
    assert [attempt.outcome for attempt in await attempts(store)] == ["status_200"]


async def has_failed(rule: Rule, times: int) -> bool:
    return rule.hits >= times


async def test_events_that_nobody_subscribes_to_cost_no_look_up(store, store_url):
    job_id = await admit(store, None)
    for progress in range(50):
        await append(store, job_id, ev.JobProgress(progress=progress), hooked=[])
    async with notifier(store_url) as service:
        looked_up = looked_up_by(service)
        await until(lambda: consumed(store))
        assert looked_up == []
        await admit(store, "https://hooks.invalid", events=["job.created"])
        await until(lambda: consumed(store))
    assert looked_up == ["history"]


def looked_up_by(service: Notifier) -> list[str]:
    """Note each call about a job that a notifier makes from now on."""
    noted: list[str] = []

    def noting(name: str, call):
        def noted_call(*args, **kwargs):
            noted.append(name)
            return call(*args, **kwargs)

        return noted_call

    for name in ("history", "tenants"):
        setattr(service._store.jobs, name, noting(name, getattr(service._store.jobs, name)))
    return noted


async def consumed(store: Store) -> bool:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    [group] = [group for group in groups if group["name"] == keys.GROUP_NOTIFIER.encode()]
    [(last, _)] = await store.client.xrevrange(keys.log(POOL), count=1)
    return group["last-delivered-id"] == last and group["pending"] == 0


async def test_a_slow_receiver_holds_up_nobody_else(store, store_url):
    """One slow receiver with a backlog; another tenant's is served at once, and the endpoint keeps its limit."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200))]) as slow, Receiver([answer(200)]) as quick:
        for _ in range(30):
            await admit(store, slow.url(), events=["job.created"])
        async with notifier(store_url, delays_s=(0,), timeout_s=60):
            await slow.wait_for(lambda: slow.open_connections == 5)
            begun_s = time.monotonic()
            for number in range(20):
                await admit(store, quick.url(f"/{number}"), events=["job.created"])
            await quick.wait_for_requests(20)
            assert time.monotonic() - begun_s < 5
            assert len(slow.requests) == 5
            released.set()
            await slow.wait_for_requests(30)
            await until(lambda: settled(store))
    assert slow.busiest == 5


async def test_a_path_of_its_own_for_each_job_does_not_raise_the_limit(store, store_url):
    async with Receiver([silent]) as slow:
        for number in range(12):
            await admit(store, slow.url(f"/{number}"), events=["job.created"])
        async with notifier(store_url, delays_s=(0,), timeout_s=0.5, circuit_s=0.05):
            await slow.wait_for_requests(12)
    assert slow.busiest == 5


async def test_entries_that_cannot_be_read_are_set_aside_and_block_nothing(store, store_url):
    """Field case 32: the bad ones are set aside with their reason, the others are sent once."""
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.created", "job.started"])
        log = keys.log(POOL)
        await store.client.xadd(log, {"nonsense": b"\xff"})
        await store.client.xadd(log, {"t": "job.started", "j": job_id, "n": "2", "h": "1", "d": "{not json"})
        await store.client.xadd(log, {"t": "job.started", "j": "wrk_1", "n": "2", "h": "1", "d": "{}"})
        await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url):
            await receiver.wait_for_requests(2)
            await until(lambda: settled(store))
    assert await store.client.xlen(keys.poison(POOL)) == 3
    assert len(receiver.requests) == 2


async def test_an_event_that_fails_in_a_way_nobody_foresaw_stops_only_itself(store, store_url):
    """Its job has a time that is none: reading it fails each time, for the whole batch."""
    async with Receiver([answer(200)]) as receiver:
        broken = await admit(store, receiver.url(), events=["job.created"])
        kept = await admit(store, receiver.url(), events=["job.created"])
        await store.client.hset(keys.job(POOL, broken), FIELDS["created_ms"], "yesterday")
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    assert [orjson.loads(request.body)["jobId"] for request in receiver.requests] == [kept]
    [(_, fields)] = await store.client.xrange(keys.poison(POOL))
    assert fields[b"reason"].startswith(b"cannot be planned")


async def test_a_stored_delivery_that_cannot_be_read_is_set_aside(store, store_url):
    broken = "dlv_00000000000000000000000000aa_1_anon_0"
    await store.client.hset(keys.delivery(POOL, broken), mapping={"state": "waiting", "try": "0"})
    await store.client.zadd(keys.due_of(POOL, "anon"), {broken: 1, broken.replace("_1_", "_2_"): 1})
    await store.client.zadd(keys.due(POOL), {"anon": 1})
    async with notifier(store_url):
        await until(lambda: settled(store))
    assert (await store.deliveries.read(POOL, broken))["state"] == "unreadable"


async def test_a_job_that_was_erased_before_planning_is_passed_over(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        erased = await admit(store, receiver.url(), events=["job.created"])
        await store.client.delete(keys.job(POOL, erased))
        kept = await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    assert [orjson.loads(request.body)["jobId"] for request in receiver.requests] == [kept]


async def test_without_a_secret_nothing_is_sent_and_the_attempts_say_why(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        await admit(store, receiver.url(), tenant_id="t_other", events=["job.created"])
        async with notifier(store_url, delays_s=(0, 0.1)):
            await until(lambda: log_of(store, "webhook.exhausted"))
    assert receiver.connections == 0
    assert [attempted.outcome for attempted in await attempts(store)] == ["unsigned", "unsigned"]


async def test_two_notifiers_share_the_work_and_count_each_attempt_once(store, store_url):
    async with Receiver([answer(500), answer(200)]) as receiver:
        async with notifier(store_url, consumer="one"), notifier(store_url, consumer="two"):
            jobs = [await admit(store, receiver.url(), events=["job.created"]) for _ in range(60)]
            await receiver.wait_for_requests(61)
            await until(lambda: settled(store))
        delivered = [attempted for attempted in await attempts(store) if attempted.outcome == "status_200"]
    assert sorted(attempted.job_id for attempted in delivered) == sorted(jobs)
    assert len(await attempts(store)) == len(receiver.requests) == 61


async def test_what_another_consumer_left_unhandled_is_planned_by_those_who_live(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        await admit(store, receiver.url(), events=["job.created"])
        dead = store.group(POOL, keys.GROUP_NOTIFIER, "dead")
        assert len(await dead.read()) == 1
        async with notifier(store_url):
            await receiver.wait_for_requests(1)
            await until(lambda: settled(store))


async def test_a_stopped_notifier_leaves_the_group_and_hands_back_what_it_claimed(store, store_url):
    """Field case 122 and the rolling deploy: no name stays behind, nothing waits for a claim to run out."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200)), answer(200)]) as receiver:
        for _ in range(8):
            await admit(store, receiver.url(), events=["job.created"])
        async with notifier(store_url, of_endpoint=1, timeout_s=60):
            await receiver.wait_for_requests(1)
        assert await store.client.xinfo_consumers(keys.log(POOL), keys.GROUP_NOTIFIER) == []
        released.set()
        begun_s = time.monotonic()
        async with notifier(store_url, timeout_s=60):
            await until(lambda: settled(store))
    assert time.monotonic() - begun_s < 10
    assert len(await attempts(store)) == 8
    assert all(attempted.attempt == 1 for attempted in await attempts(store))


async def test_a_lost_group_is_made_again_and_doubles_nothing(store, store_url):
    """Made again at 0, the group reads old events once more: planning them twice makes no second delivery."""
    async with Receiver([answer(200)]) as receiver, notifier(store_url):
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(1)
        await until(lambda: settled(store))
        await store.client.hdel(keys.meta(POOL), f"cursor:{keys.GROUP_NOTIFIER}")
        await store.client.xgroup_destroy(keys.log(POOL), keys.GROUP_NOTIFIER)
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(2)
        await until(lambda: settled(store))
    assert len(receiver.requests) == 2


async def test_a_notifier_begins_anew_when_positions_come_to_mean_another_log(store, store_url):
    """why.md 18: a webhook names the position of its event, so a new epoch must not wait for somebody's restart."""
    async with notifier(store_url) as service:
        await until(lambda: _has_opened(service))
        [running] = [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "Notifier.run"]
        await store.client.hincrby(keys.meta(POOL), "epoch", 1)
        assert await asyncio.wait_for(running, 20) is True


async def _has_opened(service: Notifier) -> bool:
    return bool(service._epochs)

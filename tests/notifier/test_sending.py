"""What is sent to configured endpoints, and what is not, against a real store and real receivers."""

import asyncio
import itertools
from collections import Counter

import orjson
import pytest
from standardwebhooks import Webhook

from contracts import events as ev
from contracts import ids
from contracts.store import Word, keys
from tests.notifier.certificates import server_tls
from tests.notifier.endpoints import (
    JOB,
    all_are,
    configuration_log,
    make_endpoint,
    name_of,
    plan,
    planned,
    states,
    tell,
)
from tests.notifier.hooked import (
    POOL,
    SECRET,
    TENANT,
    admit,
    attempts,
    has_tried,
    log_of,
    notifier,
    pending,
    settled,
    until,
)
from tests.notifier.receiver import Receiver, after, answer, close_without_answer, reset, silent


async def test_a_delivery_goes_where_its_endpoint_says_now_signed_with_what_it_keeps(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url("/kept?token=t"))
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        async with notifier(store_url):
            [request] = await receiver.wait_for_requests(1)
            await until(lambda: settled(store))
    assert request.request_line.split()[1] == "/kept?token=t"
    assert request.headers["x-team"] == "blue"
    Webhook(SECRET).verify(request.body, request.headers)
    [attempted] = await attempts(store)
    assert (attempted.endpoint_id, attempted.delivery_id) == (endpoint_id, delivery_id)
    assert "token" not in str(await store.deliveries.read(POOL, delivery_id))


async def test_after_disable_nothing_is_posted_and_a_replay_sends_what_was_held_once(store, store_url):
    """Field case 90: 20 waiting retries; 0 posts after disable, shown as held; re-enable + replay sends them once."""
    async with Receiver([*[answer(500)] * 20, answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        delivery_ids = await plan(store, [planned(name, number) for number in range(1, 21)])
        async with notifier(store_url, delays_s=(0, 2, 2), circuit_s=0.01):
            await until(lambda: has_tried(store, 20))
            await tell(store, ev.EndpointDisabled(tenant_id=TENANT, endpoint_id=endpoint_id, why="manual"), endpoint_id)
            posted = len(receiver.requests)
            await until(lambda: all_are(store, delivery_ids, "held"))
            assert await store.client.exists(keys.due_of(POOL, name)) == 0

            await tell(store, ev.EndpointEnabled(tenant_id=TENANT, endpoint_id=endpoint_id), endpoint_id)
            assert len(receiver.requests) == posted
            assert await store.deliveries.revive(POOL, name) == 20
            await until(lambda: all_are(store, delivery_ids, "delivered"))
    told = Counter(request.headers["webhook-id"] for request in receiver.requests[posted:])
    assert told == {ids.event_id(JOB, number): 1 for number in range(1, 21)}


async def test_an_endpoint_that_only_fails_is_warned_about_and_disabled_and_told_with_context(store, store_url):
    """Field cases 91 and 103: marks with all that one needs to know, then disabled; replay sends what is missing."""
    async with Receiver([answer(500)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url("/x?token=secret"))
        name = name_of(endpoint_id)
        delivery_ids = await plan(store, [planned(name, number) for number in (1, 2)])
        async with notifier(store_url, delays_s=(0, *[0.1] * 60), circuit_s=0.05, disable_after_s=1.2):
            await until(lambda: configuration_log(store, "webhook.endpoint_disabled"))
            await until(lambda: all_are(store, delivery_ids, "held"))
            posted = len(receiver.requests)
        warnings = [entry.event() for entry in await log_of(store, "webhook.endpoint_failing")]
        [disabled] = [entry.event() for entry in await configuration_log(store, "webhook.endpoint_disabled")]
        receiver.script[:] = [answer(200)]
        await tell(store, ev.EndpointEnabled(tenant_id=TENANT, endpoint_id=endpoint_id), endpoint_id)
        async with notifier(store_url):
            await store.deliveries.revive(POOL, name, since_ms=1)
            await until(lambda: all_are(store, delivery_ids, "delivered"))
    assert [warned.percent for warned in warnings] == sorted({warned.percent for warned in warnings})
    assert {50, 70, 90} >= {warned.percent for warned in warnings} != set()
    first = warnings[0]
    assert (first.endpoint_id, first.event_type, first.outcome, first.status) == (
        endpoint_id, "job.completed", "status_500", 500,
    )  # fmt: skip
    assert first.delivery_id in delivery_ids
    assert first.job_id == JOB
    assert first.message_id in {ids.event_id(JOB, 1), ids.event_id(JOB, 2)}
    assert first.attempts >= 1
    assert first.disables_at_ms == first.since_ms + 1200
    assert (disabled.why, disabled.status, disabled.outcome) == ("failing", 500, "status_500")
    assert disabled.failures >= 10
    assert all(entry.hooked for entry in await log_of(store, "webhook.endpoint_failing"))
    everything = str(await store.client.xrange(keys.log(POOL))) + str(await store.client.xrange(keys.log(keys.SYSTEM)))
    assert "token=secret" not in everything
    replayed = [request.headers["webhook-id"] for request in receiver.requests[posted:]]
    assert sorted(replayed) == [ids.event_id(JOB, 1), ids.event_id(JOB, 2)]


async def test_one_success_in_between_begins_the_time_anew(store, store_url):
    """Field case 91: one success resets the timer."""
    async with Receiver([*[answer(500)] * 6, answer(200), answer(500)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        await plan(store, [planned(name_of(endpoint_id), 1), planned(name_of(endpoint_id), 2)])
        async with notifier(store_url, delays_s=(0, *[0.1] * 9)):
            await receiver.wait_for_requests(8)
            await until(lambda: has_tried(store, 8))
    row = await store.deliveries.endpoint(POOL, name_of(endpoint_id))
    seventh = (await log_of(store, "webhook.attempted"))[6]
    assert row.row <= len(receiver.requests) - 7
    assert row.ok_ms > 0
    assert row.since_ms >= int(seventh.position.partition("-")[0])


async def test_what_waits_for_a_deleted_endpoint_ends_without_a_retry(store, store_url):
    """Field case 93: deleted with the sender stopped; `endpoint_deleted`, no post, nothing left due."""
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), ordering="strict")
        order = {"strict": True}
        delivery_ids = await plan(store, [planned(name_of(endpoint_id), number, **order) for number in range(1, 6)])
        await tell(store, ev.EndpointDeleted(tenant_id=TENANT, endpoint_id=endpoint_id), endpoint_id)
        async with notifier(store_url):
            await until(lambda: all_are(store, delivery_ids, "endpoint_deleted"))
            await until(lambda: settled(store))
    assert receiver.connections == 0
    assert await attempts(store) == []


async def test_what_was_planned_for_a_job_that_is_gone_is_sent_all_the_same(store, store_url):
    """Field case 93, the other trial: five deliveries wait, their job is removed. Each has all it needs in itself.

    None is retried or fails inside, and what was not yet planned is passed over; nothing is pending.
    """
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, receiver.url(), events=["job.created"])
        delivery_ids = await plan(
            store, [planned("anon00000001", number, job_id=job_id, url=receiver.url()) for number in range(2, 7)]
        )
        await store.client.delete(keys.job(POOL, job_id), keys.body(POOL, job_id))
        async with notifier(store_url):
            await until(lambda: all_are(store, delivery_ids, "delivered"))
            await until(lambda: settled(store))
    told = Counter(request.headers["webhook-id"] for request in receiver.requests)
    assert told == {ids.event_id(job_id, number): 1 for number in range(2, 7)}
    assert await pending(store) == 0


async def test_each_failure_of_a_connection_is_an_attempt_with_its_code_and_follows_the_plan(
    store, store_url, certificate
):
    """Field case 89: no such name, a closed port, a reset, a certificate nobody vouches for, a silent accept."""
    async with (
        Receiver([reset]) as resetting,
        Receiver([answer(200)], tls=server_tls(certificate)) as unvouched,
        Receiver([silent]) as silence,
    ):
        urls = {
            "dns": "https://no-such-host.invalid/",
            "refused": "http://127.0.0.1:1/",
            "reset": resetting.url(),
            "tls": unvouched.url(),
            "timeout": silence.url(),
        }
        listed = [planned(f"anon{code:0>12}", 1, url=url) for code, url in urls.items()]
        delivery_ids = await plan(store, listed)
        async with notifier(store_url, delays_s=(0, 0.1), timeout_s=1):
            await until(lambda: all_are(store, delivery_ids, "exhausted"))
            await until(lambda: settled(store))
    for code, delivery_id in zip(urls, delivery_ids, strict=True):
        tries = [event for event in await attempts(store) if event.delivery_id == delivery_id]
        assert [(event.attempt, event.outcome, event.status) for event in tries] == [(1, code, None), (2, code, None)]
        assert tries[0].next_at_ms is not None


async def test_410_disables_at_once_and_keeps_the_backlog(store, store_url):
    """Field case 101: 410 disables the endpoint with an event; the backlog is held, nothing more is sent."""
    async with Receiver([answer(410)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), max_in_flight=1)
        delivery_ids = await plan(store, [planned(name_of(endpoint_id), number) for number in range(1, 5)])
        async with notifier(store_url):
            await until(lambda: settled(store))
    [disabled] = [entry.event() for entry in await configuration_log(store, "webhook.endpoint_disabled")]
    assert (disabled.why, disabled.endpoint_id, disabled.status) == ("gone", endpoint_id, 410)
    assert len(receiver.requests) == 1
    assert Counter(await states(store, delivery_ids)) == {"gone": 1, "held": 3}


@pytest.mark.parametrize(("status", "state"), [(204, "delivered"), (299, "delivered"), (404, "exhausted"),
                                               (401, "exhausted"), (301, "exhausted")])  # fmt: skip
async def test_only_2xx_is_success_and_other_answers_follow_the_plan(store, store_url, status, state):
    """Field case 101: 2xx ends it; 4xx other than 410 and 3xx are retried by plan and never disable at once."""
    async with Receiver([answer(status)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        delivery_ids = await plan(store, [planned(name_of(endpoint_id), 1)])
        async with notifier(store_url, delays_s=(0, 0.05)):
            await until(lambda: settled(store))
    assert await states(store, delivery_ids) == [state]
    assert len(receiver.requests) == (1 if state == "delivered" else 2)
    assert await configuration_log(store, "webhook.endpoint_disabled") == []


async def test_after_an_outage_the_backlog_neither_floods_nor_starves(store, store_url):
    """Field case 102: many failed deliveries come due; the cap holds, fresh events and others are not behind them."""
    released = asyncio.Event()
    slow = after(released, answer(200))
    async with Receiver([slow]) as receiver, Receiver([answer(200)]) as other:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        backlog = await plan(store, [planned(name, number, due_ms=1000 + number) for number in range(1, 301)])
        async with notifier(store_url, timeout_s=60):
            await receiver.wait_for_requests(5)
            [fresh] = await plan(store, [planned(name, 1000)])
            elsewhere = await make_endpoint(store, other.url())
            await plan(store, [planned(name_of(elsewhere), number) for number in range(1, 21)])
            await other.wait_for_requests(20)  # while the first receiver answers nothing at all
            released.set()
            await until(lambda: all_are(store, [fresh], "delivered"))
            assert "waiting" in await states(store, backlog)
            place = [request.headers["webhook-id"] for request in receiver.requests].index(ids.event_id(JOB, 1000))
            await until(lambda: settled(store), timeout_s=60)
    assert place <= 20
    assert receiver.busiest == 5
    assert {*await states(store, backlog)} == {"delivered"}


async def test_what_died_is_revived_with_a_new_budget_and_dies_again_with_both_histories(store, store_url):
    """Field case 104: redrive one and all; they run, fail again, and come back with the history of both rounds."""
    async with Receiver([answer(500)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        delivery_ids = await plan(store, [planned(name, number) for number in (1, 2, 3)])
        async with notifier(store_url, delays_s=(0, 0.05), circuit_s=0.01):
            await until(lambda: all_are(store, delivery_ids, "exhausted"))
            assert (await store.deliveries.redeliver(POOL, delivery_ids[0], "w1")).id == delivery_ids[0]
            await until(lambda: has_tried(store, 8))
            assert await store.deliveries.revive(POOL, name) in (2, 3)
            await until(lambda: has_tried(store, 12))
            await until(lambda: all_are(store, delivery_ids, "exhausted"))
    rows = [await store.deliveries.read(POOL, delivery_id) for delivery_id in delivery_ids]
    assert {row["base"] for row in rows} <= {"2", "4"}
    for row in rows:
        history = [orjson.loads(row[f"a:{number}"]) for number in range(1, int(row["try"]) + 1)]
        assert len(history) >= 4
        assert {seen["outcome"] for seen in history} == {"status_500"}
    bodies = {(request.headers["webhook-id"], request.body) for request in receiver.requests}
    assert len(bodies) == 3
    assert (await store.deliveries.endpoint(POOL, name)).dead == 3


async def test_what_was_delivered_is_sent_again_under_the_same_message_id(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        async with notifier(store_url):
            await until(lambda: all_are(store, [delivery_id], "delivered"))
            again = await store.deliveries.redeliver(POOL, delivery_id, "w1")
            await receiver.wait_for_requests(2)
            await until(lambda: settled(store))
            assert await store.deliveries.redeliver(POOL, delivery_id, "w1") == again, "its reply was lost"
            assert await store.client.exists(keys.due(POOL)) == 0
    first, second = receiver.requests
    assert (again.word, again.id) == (Word.APPLIED, f"{delivery_id.removesuffix('_0')}_1")
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    assert [name for name, _ in await store.deliveries.page(POOL, TENANT)] == [again.id, delivery_id]


async def test_403_always_ends_after_three_attempts_with_two_senders(store, store_url):
    """Field case 106: exactly 3 attempts, no next time, the gaps follow the plan; nothing stays overdue."""
    async with Receiver([answer(403)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        delays_s = (0, 0.2, 0.4)
        async with notifier(store_url, delays_s=delays_s), notifier(store_url, delays_s=delays_s, consumer="two"):
            await until(lambda: all_are(store, [delivery_id], "exhausted"))
            await until(lambda: settled(store))
    assert len(receiver.requests) == len(await attempts(store)) == 3
    assert (await store.deliveries.page(POOL, TENANT))[0][1].get("due") is None
    gaps_s = [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(receiver.requests)]
    assert gaps_s[0] >= 0.16
    assert gaps_s[1] >= 0.32


async def test_the_watchdog_counts_what_has_been_due_for_more_than_a_minute(store):
    """Field cases 105 and 106: deliveries whose due time passed more than a minute ago are a figure, not a surprise."""
    await plan(store, [planned("anon1", 1, due_ms=1000), planned("anon1", 2), planned("anon2", 3, due_ms=2000)])
    survey = await store.deliveries.survey(POOL)
    assert (survey.waiting, survey.overdue, survey.circuits_open) == (3, 2, 0)


async def test_a_hang_up_after_the_request_is_counted_on_both_sides_alike(store, store_url):
    """Field case 100: on a connection that was used before; as many attempts as requests, the same id on both."""
    kept = answer(200, {"Connection": "keep-alive"})
    async with Receiver([kept, close_without_answer, kept], keeps=True) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), max_in_flight=1)
        await plan(store, [planned(name_of(endpoint_id), number) for number in (1, 2)])
        async with notifier(store_url, delays_s=(0, 0.05)):
            await until(lambda: settled(store))
    assert [attempted.outcome for attempted in await attempts(store)] == ["status_200", "reset", "status_200"]
    assert len(receiver.requests) == 3
    assert receiver.connections == 2, "the first two shared one"
    assert receiver.requests[1].headers["webhook-id"] == receiver.requests[2].headers["webhook-id"]

"""When an endpoint is sent to, and how much at once: order, rates, circuits and claims, against real receivers."""

import asyncio
import itertools
import time

from contracts import events as ev
from contracts import ids
from contracts.deliveries import Attempted, Settlement
from contracts.endpoints import Private, SigningSecret, endpoint_secret
from contracts.store import Store, keys
from services.notifier.sending.courier import CLAIM_MS, HOLD_MS
from tests.notifier.endpoints import JOB, all_are, configuration_log, make_endpoint, name_of, plan, planned, states
from tests.notifier.hooked import (
    POOL,
    SECRET,
    TENANT,
    attempts,
    has_tried,
    log_of,
    notifier,
    settled,
    until,
)
from tests.notifier.receiver import Receiver, after, answer


async def test_strict_order_holds_a_job_and_nobody_else(store, store_url):
    """Field case 95, ordered mode: later events of the job wait until the earlier is delivered; other jobs do not."""
    other = ids.mint_job_id(1_764_457_200_000, 8, "aa")
    async with Receiver([answer(500), answer(500), answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), ordering="strict", max_in_flight=1)
        name = name_of(endpoint_id)
        await plan(store, [planned(name, number, strict=True) for number in (1, 2, 3)])
        assert await states(store, [planned(name, 2).id]) == ["blocked"]
        async with notifier(store_url, delays_s=(0, 0.3, 0.3)):
            await receiver.wait_for_requests(1)
            await plan(store, [planned(name, number, job_id=other, strict=True) for number in (1, 2)])
            await until(lambda: settled(store))
    told = [request.headers["webhook-id"] for request in receiver.requests]
    of_job = [name for name in told if JOB[4:] in name]
    assert [name for name, _ in itertools.groupby(of_job)] == [ids.event_id(JOB, number) for number in (1, 2, 3)]
    assert told.index(ids.event_id(other, 1)) < told.index(ids.event_id(JOB, 2))


async def test_a_rate_of_the_endpoint_is_kept_by_two_senders_together(store, store_url):
    """Also at a start with all of it due: no burst above the rate."""
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), rate_per_s=20.0)
        await plan(store, [planned(name_of(endpoint_id), number) for number in range(1, 31)])
        async with notifier(store_url), notifier(store_url, consumer="two"):
            await receiver.wait_for_requests(30)
            await until(lambda: settled(store))
    at_s = [request.at_s for request in receiver.requests]
    assert at_s[-1] - at_s[0] >= (30 - 2) / 20 - 0.2


async def test_a_receiver_that_says_not_now_is_left_alone_with_all_that_waits(store, store_url):
    """`Retry-After` of one delivery slows the endpoint."""
    async with Receiver([answer(429, {"Retry-After": "1"}), answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), max_in_flight=1)
        await plan(store, [planned(name_of(endpoint_id), number) for number in range(1, 4)])
        async with notifier(store_url, delays_s=(0, 1, 1)):
            await receiver.wait_for_requests(4)
            await until(lambda: settled(store))
    assert receiver.requests[1].at_s - receiver.requests[0].at_s >= 0.95


async def test_a_dead_endpoint_is_probed_once_at_a_time_until_it_lives(store, store_url):
    async with Receiver([*[answer(500)] * 12, answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        await plan(store, [planned(name, number) for number in range(1, 41)])
        async with notifier(store_url, delays_s=(0, *[0.05] * 20), circuit_s=0.4):
            await until(lambda: is_open(store, name))
            opened = len(receiver.requests)
            begun_s = time.monotonic()
            await until(lambda: settled(store))
    assert opened <= 14  # ten in a row, and what was on its way
    assert time.monotonic() - begun_s >= 0.3
    assert (await store.deliveries.endpoint(POOL, name)).row == 0


async def is_open(store: Store, name: str) -> bool:
    return (await store.deliveries.endpoint(POOL, name)).is_open


async def test_a_claim_is_held_while_its_attempt_lasts(store, store_url):
    """Longer than a claim, with another sender waiting for it to run out: one attempt, one request."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200))]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        async with notifier(store_url, claim_ms=900), notifier(store_url, claim_ms=900, consumer="two"):
            await receiver.wait_for_requests(1)
            claimed_ms = await store.client.zscore(keys.due_of(POOL, name_of(endpoint_id)), delivery_id)
            await until(lambda: passed(store, claimed_ms + 1500))
            released.set()
            await until(lambda: settled(store))
    assert len(receiver.requests) == len(await attempts(store)) == 1


async def test_what_has_just_begun_is_claimed_for_little_and_what_lasts_is_held_for_longer(store, store_url):
    """So a killed process takes the places of an endpoint that answers at once from the others for about a second."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200))]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        due = keys.due_of(POOL, name_of(endpoint_id))
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        ends_ms: list[float] = []
        async with notifier(store_url, claim_ms=CLAIM_MS, timeout_s=60):
            await receiver.wait_for_requests(1)

            async def is_held() -> bool:
                ends_ms.append(await store.client.zscore(due, delivery_id))
                return CLAIM_MS < ends_ms[-1] - await now_of(store) <= HOLD_MS

            now_ms = await now_of(store)
            await until(is_held)
            released.set()
            await until(lambda: settled(store))
    assert ends_ms[0] <= now_ms + CLAIM_MS


async def test_a_claim_of_what_has_just_begun_is_not_made_longer(store, store_url):
    """However short an attempt, one in some is under way when claims are held."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200))]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        due = keys.due_of(POOL, name_of(endpoint_id))
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        async with notifier(store_url, claim_ms=240_000, timeout_s=60) as service:
            await receiver.wait_for_requests(1)
            ends_ms = await store.client.zscore(due, delivery_id)
            await service._courier._hold(POOL)
            assert await store.client.zscore(due, delivery_id) == ends_ms
            released.set()
            await until(lambda: settled(store))


async def now_of(store: Store) -> float:
    seconds, micros = await store.client.time()
    return seconds * 1000 + micros / 1000


async def passed(store: Store, at_ms: float) -> bool:
    return await now_of(store) >= at_ms


async def test_a_success_in_another_pool_keeps_an_endpoint_from_being_disabled(store, store_url):
    """Field case 91: over all pools together, one success begins the time anew."""
    await store.open_pool("second")
    async with Receiver([answer(500)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        await plan(store, [planned(name, 1)])
        async with notifier(store_url, delays_s=(0, *[0.1] * 11), circuit_s=0.05, disable_after_s=0.6):
            await until(lambda: has_tried(store, 2))
            success = Attempted(succeeded=True, outcome="2xx", took_ms=1)
            elsewhere = planned(name, 2)
            await store.deliveries.plan("second", "", [elsewhere], [])
            await store.deliveries.settle("second", Settlement(elsewhere.id, name, 1, {"state": "delivered"}, success))
            await until(lambda: all_are(store, [planned(name, 1).id], "exhausted"))
    assert await configuration_log(store, "webhook.endpoint_disabled") == []


async def test_an_endpoint_that_its_owner_changes_is_tried_at_once(store, store_url):
    """Its circuit is open for ten minutes: who mends it does not wait for that."""
    async with Receiver([answer(500)]) as broken, Receiver([answer(200)]) as mended:
        endpoint_id = await make_endpoint(store, broken.url())
        delivery_ids = await plan(store, [planned(name_of(endpoint_id), number) for number in range(1, 13)])
        async with notifier(store_url, delays_s=(0, *[0.05] * 20), circuit_s=600):
            await until(lambda: is_open(store, name_of(endpoint_id)))
            private = Private(mended.url(), {}, (SigningSecret(SECRET),))
            updated = ev.EndpointUpdated(
                tenant_id=TENANT, endpoint_id=endpoint_id, origin="http://127.0.0.1", events=("*",)
            )
            kept = {endpoint_secret(endpoint_id): private.to_json()}
            await store.directory.change(lambda _: updated, endpoint_id, kept)
            await until(lambda: all_are(store, delivery_ids, "delivered"))


async def test_what_waits_behind_an_open_circuit_for_longer_than_its_schedule_is_given_up(store, store_url):
    """Else what goes to a dead receiver that nobody disables would wait, and pile up, for ever."""
    async with Receiver([answer(500)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        old = await plan(store, [planned(name, number, due_ms=1000) for number in range(1, 31)])
        fresh_ms = 1000 * ((await store.client.time())[0] + 3600)
        [fresh] = await plan(store, [planned(name, 40, due_ms=fresh_ms)])
        async with notifier(store_url, delays_s=(0,), circuit_s=0.1):
            await until(lambda: all_are(store, old, "exhausted"))
        exhausted = [entry.event() for entry in await log_of(store, "webhook.exhausted")]
    assert sorted(event.delivery_id for event in exhausted) == sorted(old)
    assert {event.outcome for event in exhausted} >= {"circuit_open"}
    assert {event.endpoint_id for event in exhausted} == {endpoint_id}
    assert await states(store, [fresh]) == ["waiting"]
    assert len(receiver.requests) < 30
    assert await store.deliveries.revive(POOL, name) == 30

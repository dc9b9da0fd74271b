"""What an endpoint is sent of the past, against a real store and real receivers."""

import signal
from collections import Counter

import orjson
from standardwebhooks import Webhook

from contracts import events as ev
from contracts import ids
from contracts.backfills import Backfill
from contracts.endpoints import anonymous_endpoint
from contracts.store import Store, keys
from tests.notifier.endpoints import make_endpoint, tell
from tests.notifier.hooked import (
    POOL,
    SECRET,
    TENANT,
    admit,
    append,
    completed,
    finish,
    make_tenant,
    notifier,
    settled,
    started,
    until,
)
from tests.notifier.receiver import Receiver, answer
from tests.notifier.test_processes import Process

FAR_MS = 1 << 50


async def ask(store: Store, endpoint: str, **asked) -> Backfill:
    backfill = Backfill("op_1", endpoint, TENANT, **{"since_ms": 0, "until_ms": FAR_MS, "asked_ms": 1, **asked})
    assert await store.backfills.ask(POOL, backfill)
    return backfill


async def is_done(store: Store) -> bool:
    return all(backfill.done_ms for backfill in await store.backfills.all(POOL))


async def test_a_new_endpoint_is_sent_what_happened_before_it_was_made(store, store_url):
    """Any event since then, also never attempted: of its tenant, as far as it subscribes, and what is sent stays so."""
    await make_tenant(store, "t_other")
    async with Receiver([answer(200)]) as receiver:
        jobs = [await admit(store, None) for _ in range(3)]
        await admit(store, None, tenant_id="t_other")
        for job_id in jobs:
            await append(store, job_id, started(), ev.JobProgress(progress=10), ev.JobProgress(progress=20), hooked=[])
            await append(store, job_id, completed(job_id), hooked=[])
        endpoint_id = await make_endpoint(store, receiver.url(), events=("job.*",), ordering="strict")
        async with notifier(store_url):
            await ask(store, endpoint_id)
            await until(lambda: is_done(store))
            await until(lambda: settled(store))
            [done] = await store.backfills.all(POOL)
    told = Counter((request.headers["webhook-id"]) for request in receiver.requests)
    # Of old progress only the newest, and none once the job has ended.
    assert told == {ids.event_id(job_id, number): 1 for job_id in jobs for number in (1, 2, 5)}
    assert done.planned == 9
    for request in receiver.requests:
        Webhook(SECRET).verify(request.body, request.headers)


async def test_a_backfill_is_bounded_by_its_times(store, store_url):
    async with Receiver([answer(200)]) as receiver:
        first, second, third = [await admit(store, None) for _ in range(3)]
        log = await store.client.xrange(keys.log(POOL))
        spread = {}
        await store.client.delete(keys.log(POOL))
        for (_, fields), at_ms in zip(log, (1_000, 2_000, 3_000), strict=True):
            spread[at_ms] = await store.client.xadd(keys.log(POOL), fields, id=f"{at_ms}-1")
        await store.open_pool(POOL)
        for job_id, at in zip((first, second, third), spread.values(), strict=True):
            await store.client.hset(keys.job(POOL, job_id), "p", at)
        endpoint_id = await make_endpoint(store, receiver.url())
        await ask(store, endpoint_id, since_ms=2_000, until_ms=2_000)
        async with notifier(store_url):
            await until(lambda: is_done(store))
            await until(lambda: settled(store))
    assert [orjson.loads(request.body)["jobId"] for request in receiver.requests] == [second]


async def test_a_backfill_goes_on_after_its_notifier_was_killed(store, store_url):
    """kill -9 amid it: another goes on where it was, and each event has its one delivery."""
    jobs = [await admit(store, None) for _ in range(450)]
    endpoint_id = await make_endpoint(store, "http://127.0.0.1:9/hook", events=("job.created",))
    # Off, so that nothing is sent: only what is planned is looked at here.
    await tell(store, ev.EndpointDisabled(tenant_id=TENANT, endpoint_id=endpoint_id, why="manual"), endpoint_id)
    await ask(store, endpoint_id)
    async with Process(store_url) as process:
        await until(lambda: has_moved(store))
        await process.stop(signal.SIGKILL)
    # as if its lease had run out; nobody waits ten seconds for that in a test
    await store.client.delete(keys.backfill_leases(POOL))
    async with Process(store_url):
        await until(lambda: is_done(store))
    planned = [fields["message"] for _, fields in await store.deliveries.page(POOL, TENANT, limit=1_000)]
    assert sorted(planned) == sorted(ids.event_id(job_id, 1) for job_id in jobs)


async def has_moved(store: Store) -> bool:
    [backfill] = await store.backfills.all(POOL)
    return backfill.position != ""


async def test_a_delivery_that_is_forgotten_is_rendered_again_under_the_id_it_had(store, store_url):
    """Field case 106: replay works from the event even if no delivery record exists; also to a job's own webhook."""
    async with Receiver([answer(200)]) as receiver, Receiver([answer(200)]) as own:
        endpoint_id = await make_endpoint(store, receiver.url(), events=("job.created", "job.completed"))
        job_id = await admit(store, own.url(), events=["job.completed"])
        await finish(store, job_id, result={"seed": 7})
        async with notifier(store_url):
            await own.wait_for_requests(1)
            await receiver.wait_for_requests(2)
            await until(lambda: settled(store))
        for delivery_id, _ in await store.deliveries.page(POOL, TENANT):
            await store.client.delete(keys.delivery(POOL, delivery_id))
            await store.client.zrem(keys.deliveries_of(POOL, TENANT), delivery_id)
        await tell(
            store, ev.EndpointUpdated(**await settings_of(store, endpoint_id, events=("job.started",))), endpoint_id
        )
        async with notifier(store_url):
            anonymous = anonymous_endpoint(TENANT, own.url())
            for number, endpoint in enumerate((endpoint_id, anonymous)):
                asked = Backfill(f"op_{number}", endpoint, TENANT, 0, 0, asked_ms=1, job_id=job_id, sequence=3)
                await store.backfills.ask(POOL, asked)
            await own.wait_for_requests(2)
            await receiver.wait_for_requests(3)
            await until(lambda: settled(store))
            await until(lambda: is_done(store))
    first, again = own.requests
    assert (first.headers["webhook-id"], first.body) == (again.headers["webhook-id"], again.body)
    assert receiver.requests[-1].headers["webhook-id"] == ids.event_id(job_id, 3)
    assert [backfill.planned for backfill in await store.backfills.all(POOL)] == [1, 1]


async def settings_of(store: Store, endpoint_id: str, **changed) -> dict[str, object]:
    known = (await store.directory.refresh()).endpoints[endpoint_id]
    told = {"tenant_id": known.tenant_id, "endpoint_id": endpoint_id, "origin": known.origin, "events": known.events}
    return told | changed


async def test_a_deleted_endpoint_ends_its_backfill_and_a_broken_one_is_removed(store, store_url):
    await admit(store, None)
    await ask(store, ids.mint_endpoint_id(1, 1))
    await store.client.hset(keys.backfills(POOL), mapping={"op_x": "no JSON", "op_y": "[]", "op_z": "{}"})
    async with notifier(store_url):
        await until(lambda: is_done(store))
    assert list(await store.client.hgetall(keys.backfills(POOL))) == [b"op_1"]


async def test_a_lease_keeps_others_away_until_it_runs_out_and_then_fences_its_holder(store):
    asked = await ask(store, "wh_x")
    claims = store.backfills
    assert await claims.claim(POOL, "one", 1_000, now_ms=1_000) == asked
    assert await claims.claim(POOL, "two", 1_000, now_ms=1_999) is None
    assert await claims.claim(POOL, "one", 1_000, now_ms=1_999) == asked
    assert await claims.claim(POOL, "two", 1_000, now_ms=2_999) == asked
    assert not await claims.keep(POOL, "one", 1_000, asked, now_ms=3_000)
    assert await claims.keep(POOL, "two", 1_000, asked, now_ms=3_000)

"""Planning on each server: it acknowledges, sets aside, makes one delivery of each, and keeps the group's cursor."""

from contracts import events as ev
from contracts import ids
from contracts.deliveries import PlannedDelivery
from contracts.store import Store, keys
from contracts.store.jobs import Limits
from contracts.store.log import GroupReader, Poison
from contracts.store.write import Write

POOL, GROUP = "default", keys.GROUP_NOTIFIER
DELIVERY = "dlv_00000000000000000000000000aa_1_anon_0"


async def admit(store: Store, number: int) -> str:
    job_id = ids.mint_job_id(1_764_457_200_000, number, "aa")
    created = ev.JobCreated(tenant_id="t_a", model="echo@1", timeout_ms=60_000, body_bytes=2)
    return (await store.jobs.admit(POOL, Write(job_id, (created,)), b"{}", "t_a", Limits())).position


def reader(store: Store, consumer: str) -> GroupReader:
    return store.group(POOL, GROUP, consumer)


async def cursor(store: Store) -> str | None:
    return await store.client.hget(keys.meta(POOL), f"cursor:{GROUP}")


def planned(delivery_id: str = DELIVERY) -> PlannedDelivery:
    fields = {"url": "https://a.example", "body": '{"text":"é\u2028"}'}
    return PlannedDelivery(delivery_id, fields, endpoint="anon", tenant_id="t_a", job_id="job_1")


async def test_planning_twice_makes_one_delivery_and_acknowledges(store: Store) -> None:
    position = await admit(store, 1)
    [message] = await reader(store, "one").read(block_ms=100)
    assert message.position == position

    assert await store.deliveries.plan(POOL, GROUP, [planned()], [position]) == 1
    assert await store.deliveries.plan(POOL, GROUP, [planned()], [position]) == 0

    assert (await store.client.xpending(keys.log(POOL), GROUP))["pending"] == 0
    row = await store.deliveries.read(POOL, DELIVERY)
    assert row is not None
    assert (row["try"], row["state"], row["body"]) == ("0", "waiting", '{"text":"é\u2028"}')


async def test_the_cursor_stays_below_what_another_consumer_still_holds(store: Store) -> None:
    """A lost group is made again at the cursor: any further on, the held entry would be skipped for ever."""
    first, second = await admit(store, 1), await admit(store, 2)
    [held] = await reader(store, "slow").read(count=1, block_ms=100)
    [handled] = await reader(store, "quick").read(count=1, block_ms=100)
    assert (held.position, handled.position) == (first, second)

    await store.deliveries.plan(POOL, GROUP, [], [second])
    assert await cursor(store) != second.encode()
    await store.client.xgroup_destroy(keys.log(POOL), GROUP)
    await store.open_pool(POOL)
    again = await reader(store, "quick").read(block_ms=100) or await reader(store, "quick").read(block_ms=100)
    assert [message.position for message in again] == [first, second]

    await store.deliveries.plan(POOL, GROUP, [], [first, second])
    assert await cursor(store) == second.encode()


async def test_poison_is_set_aside_with_its_reason_and_does_not_come_again(store: Store) -> None:
    position = await admit(store, 1)
    await reader(store, "one").read(block_ms=100)
    await store.deliveries.plan(POOL, GROUP, [], [position], [Poison(position, "not JSON")])
    [(_, fields)] = await store.client.xrange(keys.poison(POOL))
    assert fields == {b"group": GROUP.encode(), b"at": position.encode(), b"reason": b"not JSON"}
    assert (await store.client.xpending(keys.log(POOL), GROUP))["pending"] == 0


async def test_only_consumers_that_hold_nothing_leave(store: Store) -> None:
    """Field case 122: names do not pile up, and no pending entry is dropped with its consumer."""
    await admit(store, 1)
    await reader(store, "holds").read(block_ms=100)
    await reader(store, "empty").read(block_ms=10)
    await reader(store, "fresh").read(block_ms=10)

    assert await store.deliveries.leave(POOL, GROUP, 3_600_000, "holds") == 0
    assert await store.deliveries.leave(POOL, GROUP, 3_600_000, "empty") == 1
    names = {consumer["name"] for consumer in await store.client.xinfo_consumers(keys.log(POOL), GROUP)}
    assert names == {b"holds", b"fresh"}

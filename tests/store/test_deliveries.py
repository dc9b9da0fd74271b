"""The verbs of the notifier on each server: planning acknowledges, claims run out, a settled delivery stays settled."""

from contracts import events as ev
from contracts import ids
from contracts.store import Store, Word, keys
from contracts.store.deliveries import PlannedDelivery
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
    return PlannedDelivery(delivery_id, {"url": "https://a.example", "body": '{"text":"é\u2028"}'})


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


async def test_a_claim_hides_a_delivery_until_it_runs_out(store: Store) -> None:
    await store.deliveries.plan(POOL, GROUP, [planned()], [], now_ms=1000)
    claimed = await store.deliveries.claim_due(POOL, 10, 500, now_ms=1000)
    assert (claimed.ids, claimed.now_ms, claimed.next_due_ms) == ((DELIVERY,), 1000, 1500)
    assert (await store.deliveries.claim_due(POOL, 10, 500, now_ms=1499)).ids == ()
    assert (await store.deliveries.claim_due(POOL, 10, 500, now_ms=1500)).ids == (DELIVERY,)


async def test_a_claim_is_held_or_given_back_unless_it_was_settled(store: Store) -> None:
    await store.deliveries.plan(POOL, GROUP, [planned()], [], now_ms=1000)
    await store.deliveries.claim_due(POOL, 10, 500, now_ms=1000)
    assert await store.deliveries.hold(POOL, [DELIVERY], 500, now_ms=1400) == 1
    assert (await store.deliveries.claim_due(POOL, 10, 500, now_ms=1899)).ids == ()
    assert await store.deliveries.hold(POOL, [DELIVERY], 0, now_ms=1001) == 1
    assert (await store.deliveries.claim_due(POOL, 10, 500, now_ms=1001)).ids == (DELIVERY,)

    assert (await store.deliveries.settle(POOL, DELIVERY, 1, [], {"state": "delivered"}, None)).word is Word.APPLIED

    assert await store.deliveries.hold(POOL, [DELIVERY], 0, now_ms=1002) == 0
    assert (await store.deliveries.claim_due(POOL, 10, 500, now_ms=9999)).ids == ()


async def test_two_senders_with_one_delivery_count_one_attempt(store: Store) -> None:
    await store.deliveries.plan(POOL, GROUP, [planned()], [])
    attempted = ev.WebhookAttempted(
        delivery_id=DELIVERY, job_id="job_1", event_type="job.created", attempt=1, outcome="reset"
    )
    first = await store.deliveries.settle(POOL, DELIVERY, 1, [attempted], {}, 5000)
    second = await store.deliveries.settle(POOL, DELIVERY, 1, [attempted], {}, 6000)
    assert (first.word, second.word) == (Word.APPLIED, Word.CONFLICT)
    assert await store.client.zscore(keys.due(POOL), DELIVERY) == 5000


async def test_a_due_time_without_a_delivery_is_swept_away(store: Store) -> None:
    await store.client.zadd(keys.due(POOL), {DELIVERY: 1})
    assert (await store.deliveries.settle(POOL, DELIVERY, 1, [], {}, None)).word is Word.GONE
    assert await store.client.zcard(keys.due(POOL)) == 0


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

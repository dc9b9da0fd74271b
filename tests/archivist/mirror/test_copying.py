"""What the topic holds: every event once, in order, as the same record that is shown everywhere."""

import orjson

from contracts.store import Store, keys
from tests.archivist.mirror.rig import check_order, jobs, mirroring, new_topic, news, records_in, topic_of
from tests.notifier.hooked import POOL, until
from tests.notifier.kafka import Broker, records_of


async def is_copied(store: Store) -> bool:
    """Whether the cursor stands at the end of the log."""
    return await cursor(store) == await store.end_of_log(POOL)


async def cursor(store: Store) -> str:
    return (await store.client.hget(keys.meta(POOL), "cursor:mirror") or b"0-0").decode()


async def group(store: Store, name: str = keys.GROUP_MIRROR) -> dict:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    return next((one for one in groups if one["name"] == name.encode()), {})


async def test_every_event_is_a_record_keyed_by_its_job_and_the_group_stands_behind_it(
    store: Store, broker: Broker
) -> None:
    """The records are those that a notifier reads instead of the log, and that GET /v1/events shows."""
    await jobs(store, 12)
    await store.client.xadd(keys.log(POOL), {"t": "policy.applied", "j": "policy", "d": b'{"version":1}'})
    name = await new_topic(broker)
    async with mirroring(store, topic_of(broker, name)):
        await until(lambda: is_copied(store))
        await jobs(store, 1)  # live, one by one
        await until(lambda: is_copied(store))
    partitions = await records_in(broker, name, await store.client.xlen(keys.log(POOL)))
    of_jobs = sorted((one for part in partitions for one in part if one.key != b"policy"), key=lambda one: one.value)
    assert of_jobs == sorted(await records_of(store), key=lambda one: one.value)
    (of_pool,) = [orjson.loads(one.value) for part in partitions for one in part if one.key == b"policy"]
    assert (of_pool["type"], of_pool["actor"]["id"]) == ("policy.applied", "scheduler")
    check_order(partitions)
    assert sum(len(part) for part in news(partitions)) == await store.client.xlen(keys.log(POOL))
    stands = await group(store)
    assert stands["last-delivered-id"].decode() == await store.end_of_log(POOL)
    assert (stands["lag"], stands["pending"]) == (0, 0)
    told = await store.client.hgetall(keys.mirror(POOL))
    assert (told[b"until"], told[b"reason"], told[b"failures"]) == (b"0", b"", b"0")
    assert int(told[b"count"]) == await store.client.xlen(keys.log(POOL))

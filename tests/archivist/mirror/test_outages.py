"""What a mirror does while something is away, and with what can be no record."""

import asyncio
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import structlog.testing

from contracts.archive import Archive, ArchiveTail
from contracts.artifacts.local import LocalObjects
from contracts.errors import ConfigError, StoreUnavailable
from contracts.kafka.connection import Cluster, Topic
from contracts.store import Store, keys
from services.archivist.mirror.service import STOP_S, Mirror
from services.archivist.mirror.source import MirrorSource
from tests.archivist.mirror.rig import (
    LOG,
    check_order,
    jobs,
    mirroring,
    new_topic,
    news,
    position_of,
    records_in,
    topic_of,
)
from tests.archivist.mirror.test_copying import cursor, is_copied
from tests.archivist.rig import Pool
from tests.notifier.hooked import POOL, until
from tests.notifier.kafka import Broker
from tests.notifier.test_kafka_source import closed_port, door


async def told(store: Store) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in (await store.client.hgetall(keys.mirror(POOL))).items()}


async def is_failing(store: Store) -> bool:
    return bool((await told(store)).get("reason"))


async def length(store: Store) -> int:
    return await store.client.xlen(keys.log(POOL))


async def test_a_broker_that_comes_late_is_waited_for_and_the_reason_is_told(store: Store, broker: Broker) -> None:
    """Also longer than the lease lasts: the pool stays whose it is, and at most one batch waits."""
    await jobs(store, 5)
    name = await new_topic(broker)
    with closed_port() as address:
        async with mirroring(store, topic_of(broker, name, address), lease_ms=300):
            await until(lambda: is_failing(store))
            first = await told(store)
            await until(lambda: has_failed_more(store, int(first["failures"]) + 2))
            assert await store.mirror.lead(POOL, "thief", 1, name) is None
            assert await cursor(store) == "0-0"
            async with door(address, broker.servers):
                await until(lambda: is_copied(store))
                await until(lambda: is_fine(store))
    assert (await told(store))["token"] == first["token"]
    check_order(await records_in(broker, name, await length(store)))


async def test_a_batch_in_hand_is_given_back_when_another_process_has_the_pool(store: Store) -> None:
    await jobs(store, 1)
    with closed_port() as address:
        async with mirroring(store, Topic(Cluster(address), "t"), lease_ms=300) as sources:
            await until(lambda: is_failing(store))
            await store.client.hset(keys.mirror(POOL), "until", 0)
            assert await store.mirror.lead(POOL, "thief", 60_000, "t") is not None
            await until(lambda: has_given_up(sources))
    assert (await told(store))["token"] == "thief"


async def has_given_up(sources: list[MirrorSource]) -> bool:
    return sources[0]._cursor is None and not await has_in_hand(sources)


async def has_failed_more(store: Store, failures: int) -> bool:
    return int((await told(store))["failures"]) > failures


async def is_fine(store: Store) -> bool:
    return (await told(store))["reason"] == ""


async def test_a_stop_while_the_broker_hangs_ends_in_time_and_the_next_mirror_sends_it(
    store: Store, broker: Broker
) -> None:
    name = await new_topic(broker)
    await jobs(store, 1)
    try:
        async with mirroring(store, topic_of(broker, name)) as sources:
            await until(lambda: is_copied(store))
            stood = await cursor(store)
            broker.process.send_signal(signal.SIGSTOP)
            await jobs(store, 5)
            await until(lambda: is_failing(store))
            assert "no acknowledgement" in (await told(store))["reason"]
            assert await has_in_hand(sources)
            begun_s = time.monotonic()
        assert time.monotonic() - begun_s < STOP_S
    finally:
        broker.process.send_signal(signal.SIGCONT)
    assert await cursor(store) == stood
    assert (await told(store))["until"] == "0"
    async with mirroring(store, topic_of(broker, name)):
        await until(lambda: is_copied(store))
    partitions = await records_in(broker, name, await length(store))
    check_order(partitions)
    assert sum(len(part) for part in news(partitions)) == await length(store)


async def has_in_hand(sources: list[MirrorSource]) -> bool:
    return not sources[0]._in_hand.is_empty


async def test_what_was_acknowledged_while_the_store_is_away_is_said_later_and_not_sent_again(
    store: Store, broker: Broker, monkeypatch
) -> None:
    await jobs(store, 4)
    name, move, failures = await new_topic(broker), store.mirror.move, [StoreUnavailable("away")] * 2

    async def lossy(*args, **kwargs) -> bool:
        if failures:
            raise failures.pop()
        return await move(*args, **kwargs)

    monkeypatch.setattr(store.mirror, "move", lossy)
    async with mirroring(store, topic_of(broker, name)):
        await until(lambda: is_copied(store))
    assert sum(len(part) for part in await records_in(broker, name, await length(store))) == await length(store)


async def test_a_second_mirror_waits_until_the_first_one_ends(store: Store, broker: Broker) -> None:
    name = await new_topic(broker)
    async with mirroring(store, topic_of(broker, name)) as second:
        await until(lambda: is_held(second))
        async with mirroring(store, topic_of(broker, name)) as first:
            await second[0].stop()
            await until(lambda: is_held(first))
            await jobs(store, 2)
            await until(lambda: is_copied(store))
    assert sum(len(part) for part in await records_in(broker, name, await length(store))) == await length(store)


async def is_held(sources: list[MirrorSource]) -> bool:
    return sources[0]._cursor is not None


async def test_a_log_that_lost_its_tail_and_a_new_epoch_are_read_from_where_the_store_stands(
    store: Store, broker: Broker
) -> None:
    name = await new_topic(broker)
    with structlog.testing.capture_logs() as log:
        async with mirroring(store, topic_of(broker, name)):
            await jobs(store, 2)
            await until(lambda: is_copied(store))
            kept = [position.decode() for position, _ in await store.client.xrange(keys.log(POOL))]
            await store.client.hset(keys.meta(POOL), "cursor:mirror", kept[2])
            await store.client.hset(keys.meta(POOL), "epoch", 2)
            await jobs(store, 1)
            await until(lambda: is_copied(store))
    partitions = await records_in(broker, name, await length(store))
    check_order(partitions)
    shown = {dict(one.headers)["position"].decode() for part in partitions for one in part}
    assert {position.split(".")[1] for position in shown if position.split(".", 2)[2] not in kept} == {"2"}
    assert any(line["event"] == "log_rewound" for line in log)
    again = [one for part in partitions for one in part if position_of(one) in kept[3:]]
    assert len(again) == 2 * len(kept[3:])


async def test_entries_that_can_be_no_record_are_set_aside_and_block_nothing(store: Store, broker: Broker) -> None:
    """Field case 82: also one that nobody foresaw, amid others."""
    await jobs(store, 2)
    first = (await store.client.xrange(keys.log(POOL), count=1))[0][1]
    bad = [
        {"x": "y"},
        {"t": "job.progress", "j": first[b"j"], "n": 9, "d": "{no json"},
        {"t": "x.y", "j": "z", "d": "["},
    ]
    aside = [(await store.client.xadd(keys.log(POOL), fields)).decode() for fields in bad]
    await jobs(store, 2)
    name = await new_topic(broker)
    async with mirroring(store, topic_of(broker, name)):
        await until(lambda: is_copied(store))
    partitions = await records_in(broker, name, await length(store) - len(bad))
    check_order(partitions)
    assert sum(len(part) for part in partitions) == await length(store) - len(bad)
    noted = [fields for _, fields in await store.client.xrange(keys.poison(POOL))]
    assert [fields[b"at"].decode() for fields in noted] == aside
    assert all(fields[b"group"] == b"mirror" and fields[b"reason"] for fields in noted)
    assert (await told(store))["aside"] == "3"


async def test_what_was_trimmed_comes_from_the_archive_and_a_hole_is_told(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    """The group pins the log from its cursor on; below it, the archive has all that was ever sealed."""
    pool = Pool(store, tmp_path / "archive")
    for _ in range(3):
        await pool.cancel(await pool.job())
    await pool.look()
    await pool.snapshot_here()
    await pool.plan()
    await store.mirror.lead(POOL, "nobody", 1, "other")
    await pool.archivist().run_once()
    assert await length(store) >= 6  # kept for the group that stands at the beginning
    assert (await store.client.hget(keys.meta(POOL), "trimmed") or b"0-0") == b"0-0"
    await store.client.xgroup_destroy(keys.log(POOL), keys.GROUP_MIRROR)
    await store.client.delete(keys.mirror(POOL))
    await store.client.hset(keys.archive(POOL), "until", 0)
    await pool.archivist().run_once()
    await pool.look()
    await store.client.xtrim(keys.log(POOL), minid=await trimmed(store), approximate=False)
    whole = await pool.everything()
    assert await length(store) < len(whole)
    name = await new_topic(broker)
    archive = Archive(store, LocalObjects(tmp_path / "archive"))
    store.archived_tail = partial(ArchiveTail, archive, store)
    async with mirroring(store, topic_of(broker, name), archive):
        await until(lambda: is_copied(store))
    partitions = await records_in(broker, name, len(whole))
    check_order(partitions)
    assert {position for part in news(partitions) for position in part} == set(whole)

    await store.client.hset(keys.meta(POOL), "cursor:mirror", "5-0")
    await store.client.hset(keys.archive(POOL), "below", whole[2])
    async with mirroring(store, topic_of(broker, name), archive):
        await until(lambda: is_copied(store))
    (hole,) = [fields for _, fields in await store.client.xrange(keys.poison(POOL))]
    assert hole[b"at"] == b"5-0"
    assert b"neither in the log nor in the archive" in hole[b"reason"]


async def trimmed(store: Store) -> str:
    return (await store.client.hget(keys.meta(POOL), "trimmed")).decode()


async def test_a_new_pool_ends_the_mirror_in_order_so_that_it_begins_anew_with_it(
    store: Store, broker: Broker, tmp_path: Path
) -> None:
    """Another topic than the one there was ends it with what to do."""
    name, stop = await new_topic(broker), asyncio.Event()
    archive = Archive(store, LocalObjects(tmp_path))
    topic = topic_of(broker, name)
    running = asyncio.create_task(Mirror(store, archive, topic, "", LOG, idempotent=False).run(stop))
    await jobs(store, 1)
    await until(lambda: is_copied(store))
    await store.directory.pool("later")
    async with asyncio.timeout(30):
        assert await running is True
    assert (await told(store))["until"] == "0"
    other = Mirror(store, archive, topic_of(broker, "other"), "", LOG, idempotent=False)
    with pytest.raises(ConfigError, match=f"mirrored to topic {name}"):
        await asyncio.wait_for(other.run(stop), 30)

"""The mirror as a process: killed, stopped, without its store and without its broker."""

import asyncio
import os
import random
import signal
from pathlib import Path

from contracts.store import Store, keys
from services.archivist.mirror.source import BATCH
from tests.archivist.mirror.rig import Process, check_order, jobs, new_topic, news, records_in
from tests.archivist.mirror.test_copying import cursor, is_copied
from tests.notifier.hooked import POOL, until
from tests.notifier.kafka import Broker

EVENTS = int(os.environ.get("HEADRACE_TEST_MIRRORED", "600"))
KILLS = int(os.environ.get("HEADRACE_TEST_MIRROR_KILLS", "2"))  # each start costs a second of computing


async def test_a_mirror_killed_again_and_again_loses_nothing_and_keeps_the_order(
    store: Store, store_url: str, broker: Broker, tmp_path: Path
) -> None:
    """Field cases 74 and 82: kill -9 while events come; 5,000 of them and three kills by hand, fewer here."""
    name = await new_topic(broker)
    mirror = Process(store_url, broker, name, tmp_path)
    killed = asyncio.Event()
    feeding = asyncio.create_task(feed(store, killed))
    try:
        for _ in range(KILLS):
            stood = await cursor(store)
            await mirror.start()
            await until(lambda stood=stood: has_moved(store, stood))
            await asyncio.sleep(random.random() * 0.03)  # at any moment, also amid a batch
            await mirror.stop(signal.SIGKILL)
            # of one that is dead, only its lease says so: not waited for here
            await store.client.hset(keys.mirror(POOL), "until", 0)
        killed.set()
        await mirror.start()
        await feeding
        await until(lambda: is_copied(store), timeout_s=60)
        assert await mirror.stop() == 0
    finally:
        feeding.cancel()
        if mirror.process.returncode is None:
            await mirror.stop(signal.SIGKILL)
    wanted = [position.decode() for position, _ in await store.client.xrange(keys.log(POOL))]
    partitions = await records_in(broker, name, len(wanted))
    told = [position for part in news(partitions) for position in part]
    print(f"\n{len(wanted)} events, {sum(map(len, partitions))} records, {KILLS} kills")
    assert len(wanted) >= EVENTS
    assert sorted(told) == sorted(wanted)
    assert sum(map(len, partitions)) <= len(wanted) + KILLS * BATCH  # what was in hand, and no more of the past
    check_order(partitions)
    assert b"error" not in mirror.told.read_bytes()


async def feed(store: Store, killed: asyncio.Event) -> None:
    """Events come while the mirror dies and starts, and as many at the end as are missing."""
    while not killed.is_set() or await store.client.xlen(keys.log(POOL)) < EVENTS:
        await jobs(store, 1 if not killed.is_set() else 20)
        await asyncio.sleep(8 / EVENTS)


async def has_moved(store: Store, stood: str) -> bool:
    return await cursor(store) != stood

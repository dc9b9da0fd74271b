"""Reading over archive and live log: every entry once, in order, whatever is sealed and trimmed beside it."""

import random

import pytest

from contracts import ids
from contracts.archive import ArchiveTail, Gone, SegmentName
from contracts.store import Store, keys
from tests.archive.rig import PLACE, POOL, Log


@pytest.mark.parametrize("seed", range(6))
async def test_a_reader_sees_every_entry_once_while_the_log_is_sealed_and_trimmed(log: Log, seed: int) -> None:
    chance = random.Random(seed)
    await log.write(5)
    seen: list[str] = []
    tail, tailed = ArchiveTail(log.archive, log.store, POOL, "0-0"), list[str]()

    for _ in range(40):
        await log.write(chance.randrange(4))
        if chance.random() < 0.5:
            await log.seal(chance.randrange(1, 9), say=chance.random() < 0.8)
        await log.snapshot_here()
        if chance.random() < 0.5 and await log.store.archive.manifest(POOL):
            await log.trim()
        async for batch in log.archive.read(POOL, seen[-1] if seen else "0-0", count=chance.randrange(1, 6)):
            seen += [record.position for record in batch]
            if chance.random() < 0.3:  # sealed and trimmed in the middle of a read
                await log.seal(chance.randrange(1, 4))
                await log.trim()
            if chance.random() < 0.3:
                break
        tailed += [entry.position for entry in await tail.read(chance.randrange(1, 6))]

    rest = [record.position for record in await log.read(seen[-1])]
    while more := await tail.read(100):
        tailed += [entry.position for entry in more]
    assert seen + rest == log.written
    assert tailed == log.written
    assert [record.position for record in await log.read()] == log.written
    assert [record.position for record in await log.read(None)] == log.written
    assert len(await log.store.client.xrange(keys.log(POOL))) < len(log.written)


async def test_a_range_ends_where_it_was_told(log: Log) -> None:
    await log.write(20)
    await log.seal(8)
    await log.snapshot_here()
    await log.trim()

    found = await log.read(log.written[2], log.written[11])

    assert [record.position for record in found] == log.written[3:12]


async def test_a_segment_that_nobody_vouched_for_is_not_read(log: Log) -> None:
    await log.write(10)
    await log.seal(4)
    await log.seal(4, say=False)

    assert [name.last for name in await log.archive.segments(POOL)] == [log.written[3]]
    assert [record.position for record in await log.read()] == log.written


async def test_a_position_that_is_nowhere_is_told_with_where_to_go_on(log: Log) -> None:
    """The leader had trimmed before the first archivist came."""
    await log.write(10)
    await log.store.client.hset(keys.meta(POOL), "trimmed", log.written[4])
    await log.store.client.xtrim(keys.log(POOL), minid=log.written[4], approximate=False)

    with pytest.raises(Gone) as without:
        await log.read()
    await log.seal(3)
    await log.snapshot_here()
    await log.trim()
    with pytest.raises(Gone):
        await log.read(log.written[1])

    assert without.value.first == log.written[4]
    assert [record.position for record in await log.read(log.written[4])] == log.written[5:]
    assert [record.position for record in await log.read(None)] == log.written[4:]


async def test_nothing_is_trimmed_that_is_not_sealed_folded_and_planned(log: Log) -> None:
    """Field case 85's other side: an entry goes when nobody needs it, and never before."""
    await log.write(12)
    await log.seal(10)
    kept = {}

    kept["no snapshot"] = await log.trim()
    await log.store.client.hset(keys.snapshot(POOL), "position", log.written[8])
    kept["groups at the beginning"] = await log.trim()
    for group in keys.LOG_GROUPS:
        await log.store.client.xgroup_setid(keys.log(POOL), group, log.written[4])
    await log.store.client.xreadgroup(keys.GROUP_NOTIFIER, "a", {keys.log(POOL): ">"}, count=6)
    await log.store.client.xack(keys.log(POOL), keys.GROUP_NOTIFIER, *log.written[6:11])
    kept["the scheduler is behind"] = await log.trim()
    await log.store.client.xgroup_setid(keys.log(POOL), keys.GROUP_SCHEDULER, log.written[11])
    kept["one is pending"] = await log.trim()
    await log.store.client.xack(keys.log(POOL), keys.GROUP_NOTIFIER, log.written[5])
    kept["the snapshot is behind"] = await log.trim()
    await log.snapshot_here()
    kept["not sealed"] = await log.trim()

    w = log.written
    assert list(kept.values()) == ["0-0", "0-0", w[4], w[5], w[8], w[9]]
    assert [record.position for record in await log.read()] == w


async def test_another_token_changes_nothing(log: Log) -> None:
    await log.write(5)
    await log.seal(2)
    calls, other = log.store.archive, "other"

    assert (await calls.lead(POOL, other, 1000, PLACE)).manifest is None
    assert (await calls.lead(POOL, "archivist", 1000, "there")).elsewhere == PLACE
    assert await calls.trim(POOL, other) is None
    assert await calls.forget(POOL, other, "completed", "9-9", []) is None
    assert (await calls.seal(POOL, other, log.written[1], log.written[2], "0" * 64, 1, [])).word == "FENCED"
    stale = await calls.seal(POOL, "archivist", log.written[0], log.written[3], "0" * 64, 1, [])
    assert (stale.word, stale.position) == ("CONFLICT", log.written[1])


async def test_what_lies_beside_segments_may_be_taken_out(log: Log) -> None:
    await log.write(3)
    await log.seal(3)
    (name,) = await log.archive.segments(POOL)
    one, other = (ids.mint_job_id(1_764_457_200_000, number, "aa") for number in (1, 2))
    later = ids.mint_job_id(4_000_000_000_000, 3, "aa")
    log.shelf.put_bodies(POOL, name, {one: b'{"prompt":"x"}\n', other: b"{}\n", later: b"{}\n"})

    assert await log.archive.body(POOL, one) == b'{"prompt":"x"}\n'
    taken = [(found, set(left)) async for found, left in log.archive.erase_bodies(POOL, {one})]
    assert taken == [({one: b'{"prompt":"x"}\n'}, {other, later})]
    assert [(found, set(left)) async for found, left in log.archive.erase_bodies(POOL, {one})] == [({}, set())]
    assert [found async for found in log.archive.erase_bodies(POOL, {later})] == []
    assert await log.archive.body(POOL, one) is None
    assert await log.archive.body(POOL, other) == b"{}\n"
    assert await log.archive.body(POOL, later) is None  # it cannot have ended before it was made
    log.shelf.put_bodies(POOL, name, {})
    log.shelf.set_aside(POOL, name)
    assert log.shelf.names(POOL) == []
    assert log.objects.get(SegmentName(1, name.first, name.last).aside_key(POOL)) is not None


async def test_a_pool_without_an_archive_reads_its_log(store: Store, log: Log) -> None:
    await log.write(4)

    assert [record.position for record in await log.read(None)] == log.written
    assert await log.archive.segments(POOL) == []

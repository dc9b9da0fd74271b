"""A log that is not the one that was archived: a new epoch begins, and nothing that was archived is lost."""

from dataclasses import replace

import pytest

from contracts.archive import START_DIGEST, Record, seal
from contracts.positions import entry_key
from contracts.store import Store, keys
from contracts.usage.rows import CREATED
from services.archivist.config import Pace
from services.archivist.pool import TakenOver
from tests.archivist.rig import AT_ONCE, POOL, Pool

FAR_MS = 4_000_000_000_000


async def archive(pool: Pool) -> None:
    await pool.look()
    await pool.archivist(config=AT_ONCE).run_once()
    await pool.store.client.hset(keys.archive(POOL), "until", 0)


async def epoch(store: Store) -> int:
    return int(await store.client.hget(keys.meta(POOL), "epoch") or 0)


def aside(pool: Pool) -> list[str]:
    return sorted(path.name for path in pool.folder.rglob("aside/*"))


async def test_a_store_that_lost_everything_begins_a_new_epoch_above_the_archive(store: Store, pool: Pool) -> None:
    """why.md 18: ids of the new log must not fall among those of the old one, whatever the clock says."""
    far = f"{FAR_MS}-7"  # the clock was ahead when that was written
    segment, packed = seal(POOL, 1, START_DIGEST, [Record("5-0", (b"t", b"x")), Record(far, (b"t", b"x"))])
    pool.archive.shelf.put(segment, packed)
    job_id = await pool.job()

    await archive(pool)

    assert await epoch(store) == 2
    assert len(aside(pool)) == 1
    later = await store.client.xadd(keys.log(POOL), {"t": "x", "j": "y", "d": "{}"})
    assert entry_key(later.decode()) > entry_key(far)
    subjects = [record.entry().subject async for batch in pool.archive.read(POOL, None) for record in batch]  # type: ignore[union-attr]
    assert subjects == [job_id, "log", "y"]


async def test_a_log_that_lost_its_end_sets_what_it_lost_aside(store: Store, pool: Pool) -> None:
    """A failover loses entries and the manifest that named them; new ones take their place."""
    for _ in range(3):
        await pool.job()
    await archive(pool)
    kept = await store.client.hgetall(keys.archive(POOL))
    end = await store.end_of_log(POOL)
    lost = [await pool.job() for _ in range(4)]
    await archive(pool)
    sealed = await pool.archive.segments(POOL)
    for position, _ in await store.client.xrange(keys.log(POOL), min=f"({end}"):
        await store.client.xdel(keys.log(POOL), position)
    await store.client.hset(keys.archive(POOL), mapping={**kept, b"until": 0})
    for job_id in lost:
        await store.client.delete(keys.job(POOL, job_id), keys.body(POOL, job_id))

    again = [await pool.job() for _ in range(2)]
    await archive(pool)

    assert await epoch(store) == 2
    assert len(aside(pool)) == len(sealed) - 1
    subjects = [record.entry().subject async for batch in pool.archive.read(POOL, None) for record in batch]  # type: ignore[union-attr]
    assert subjects[-2:] == again
    assert not set(subjects) & set(lost)
    assert [name.epoch for name in await pool.archive.segments(POOL)] == [1, 2]
    look, folded = await pool.used()
    assert look.rows == folded
    assert sum(row[CREATED] for row in folded.values()) == 3 + 2  # not those that the log lost


async def test_an_ordinary_restart_is_no_fork(store: Store, pool: Pool) -> None:
    for _ in range(5):
        await pool.job()
        await archive(pool)

    assert await epoch(store) == 1
    assert aside(pool) == []


async def test_a_log_that_lost_what_was_not_sealed_yet_begins_a_new_epoch(store: Store, pool: Pool) -> None:
    """A position that somebody was told must not come to mean another event."""
    archivist = pool.archivist(config=replace(AT_ONCE, pace=Pace(60_000, 7, 0)))
    for _ in range(3):
        await pool.job()
    await archivist.run_once()
    end = await store.end_of_log(POOL)
    await store.client.xdel(keys.log(POOL), end)
    await archivist.run_once()
    assert await epoch(store) == 2
    later = await store.client.xadd(keys.log(POOL), {"t": "x", "j": "y", "d": "{}"})
    assert entry_key(later.decode()) > entry_key(end)

    await archivist.run_once()
    assert await epoch(store) == 2


async def test_a_manifest_that_went_back_is_compared_with_the_archive_in_the_same_term(
    store: Store, pool: Pool
) -> None:  # fmt: skip
    """The store came back between two looks without what was said to it last; no call of ours failed."""
    await pool.look()
    archivist = pool.archivist()
    await pool.job()
    await archivist.run_once()
    kept = await store.client.hgetall(keys.archive(POOL))
    lost = await pool.job()
    await archivist.run_once()
    await store.client.xdel(keys.log(POOL), await store.end_of_log(POOL))
    await store.client.hset(keys.archive(POOL), mapping={**kept, b"until": 2**50})

    with pytest.raises(TakenOver):
        await archivist.run_once()
    await archivist.run_once()

    assert await epoch(store) == 2
    assert len(aside(pool)) == 1
    subjects = [record.entry().subject async for batch in pool.archive.read(POOL, None) for record in batch]  # type: ignore[union-attr]
    assert lost not in subjects

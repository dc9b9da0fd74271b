"""What tenants used, as the archivist keeps it: the same from nothing, and longer than the log."""

from dataclasses import replace
from typing import Any

from contracts.positions import entry_ms
from contracts.store import keys
from contracts.times import DAY_MS
from tests.archivist.rig import AT_ONCE, POOL, Pool


async def kept(pool: Pool) -> dict[str, Any]:
    """Every byte that is kept of it."""
    names = sorted([name async for name in pool.store.client.scan_iter(match=keys.used(POOL) + "*")])
    return {name.decode(): await pool.store.client.hgetall(name) for name in names}


async def archive(pool: Pool, **settings: Any) -> None:
    archivist = pool.archivist(config=replace(AT_ONCE, **settings))
    await archivist.run_once()
    await archivist._resign()


async def lived(pool: Pool) -> None:
    for number in range(9):
        await pool.run(await pool.job(), 100 + number)
        if number % 3 == 0:
            await archive(pool)
    await archive(pool)


async def test_counting_from_nothing_gives_the_same_bytes(pool: Pool) -> None:
    """Also of an archive that is older than the counting, when the jobs are forgotten and the log is trimmed."""
    await lived(pool)
    await pool.snapshot_here()
    await pool.plan()
    await archive(pool)
    await archive(pool)  # seals that they were forgotten
    before = await kept(pool)
    assert await pool.store.client.xlen(keys.log(POOL)) < len(await pool.everything())
    assert await pool.store.client.keys(keys.job(POOL, "*")) == []

    await pool.store.client.delete(*before)
    await archive(pool)

    assert await kept(pool) == before
    look, folded = await pool.used()
    assert look.rows == folded


async def test_the_rows_say_what_was_used_and_are_kept_as_long_as_they_are_to_be(pool: Pool) -> None:
    await lived(pool)
    look, _ = await pool.used()
    ((key, row),) = look.rows.items()
    assert (key.tenant_id, key.model) == ("t_a", "echo@1")
    assert row[:6] == [9, 9, 0, 0, 0, sum(range(100, 109))]

    old = entry_ms(look.counted.upto) // DAY_MS - 5
    await pool.store.usage.mend(POOL, look.counted.upto, look.counted.flights, {key._replace(day=old): row})
    await archive(pool, usage_ms=3 * DAY_MS)

    later = await pool.store.usage.look(POOL, [old, key.day])
    assert list(later.rows) == [key]
    assert later.counted.first == entry_ms(look.counted.upto) // DAY_MS - 3


async def test_a_segment_that_cannot_be_read_does_not_keep_the_log_from_being_sealed(pool: Pool) -> None:
    await lived(pool)
    await pool.snapshot_here()
    await pool.plan()
    await archive(pool)
    for name in await kept(pool):
        await pool.store.client.delete(name)
    first = (await pool.archive.segments(POOL))[0]
    pool.objects.put_file(first.key(POOL), b"nothing", "application/zstd")

    await pool.job()
    await archive(pool)

    manifest = await pool.store.archive.manifest(POOL)
    assert manifest is not None
    assert manifest.upto == (await pool.archive.segments(POOL))[-1].last
    assert (await pool.store.usage.look(POOL, [])).counted.upto == "0-0"

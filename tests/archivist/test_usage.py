"""What tenants used, as the archivist keeps it: the same from nothing, and longer than the log."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.archive import Archive
from contracts.audit import Mender, Projection, repair, verify
from contracts.audit.log_audit import LogAudit
from contracts.errors import Unavailable
from contracts.positions import entry_ms
from contracts.store import keys
from contracts.times import DAY_MS
from contracts.usage.audit import UsageAudit
from contracts.usage.rows import CREATED
from tests.archivist.rig import AT_ONCE, POOL, Pool

FAR_MS = 4_000_000_000_000


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
    await pool.store.usage.mend(POOL, look.counted, look.counted.flights, {key._replace(day=old): row})
    await archive(pool, usage_ms=3 * DAY_MS)

    later = await pool.store.usage.look(POOL, [old, key.day])
    assert list(later.rows) == [key]
    assert later.counted.first == entry_ms(look.counted.upto) // DAY_MS - 3


async def test_an_archivist_that_was_taken_over_counts_nothing(pool: Pool) -> None:
    await lived(pool)
    look, _ = await pool.used()
    ((key, row),) = look.rows.items()

    for token, seen in (("another", look.counted), ("", look.counted._replace(mended=7))):
        reply = await pool.store.usage.tally(POOL, token, seen, "9-9", "{}", {key: row}, {})
        assert not reply.applied
    assert (await pool.used())[0].rows == look.rows

    token = (await pool.store.client.hget(keys.archive(POOL), "token")).decode()
    for _ in range(2):  # the answer to the first was lost
        assert (await pool.store.usage.tally(POOL, token, look.counted, f"{FAR_MS}-0", "{}", {key: row}, {})).applied
    assert (await pool.store.usage.look(POOL, [key.day])).rows == {key: [2 * number for number in row]}


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


async def test_an_audit_names_what_is_wrong_and_a_repair_sets_it_right_while_it_is_counted_on(pool: Pool) -> None:
    await lived(pool)
    assert (await used_of(pool)).differing == 0
    (day,) = [name for name in await kept(pool) if name != keys.used(POOL)]
    await pool.store.client.hset(day, mapping={"t_a": "echo@1 9 9 1 0 0 1", "t_x": "echo@1 1 0\nnonsense"})
    await pool.store.client.hset(keys.used(POOL), "flights", '{"job_x":[1,5,null,0]}')

    found = await used_of(pool)
    assert (found.rows, found.differing) == (4, 4)
    assert "t_a echo@1" in found.sample[0]
    assert "attempts under way" in found.sample[-1]

    working = pool.archivist()

    class Late(UsageAudit):
        async def mend(self, mender: Mender, audit: LogAudit) -> None:
            await pool.run(await pool.job(), 50)
            await working.run_once()
            await super().mend(mender, audit)

    repaired = await repair(pool.store, pool.archive, POOL, beside=[Late(pool.store, POOL)], reason="a foreign hand")

    assert repaired.done.rebuilt == {"used": 1}
    assert [row for row, _ in repaired.done.left] == ["attempts under way"]
    again = await repair(pool.store, pool.archive, POOL, beside=[UsageAudit(pool.store, POOL)])
    assert [each.differing for each in again.after.projections if each.name == "used"] == [0]
    await pool.run(await pool.job(), 60)
    with pytest.raises(Unavailable):  # it held what was wrong, and looks again
        await working.run_once()
    await working.run_once()
    assert (await used_of(pool)).differing == 0
    look, folded = await pool.used()
    assert look.rows == folded
    assert sum(row[CREATED] for row in folded.values()) == 11


async def used_of(pool: Pool) -> Projection:
    beside = UsageAudit(pool.store, POOL)
    verdict = await verify(pool.store, Archive(pool.store, pool.objects), POOL, beside=[beside])
    return next(each for each in verdict.projections if each.name == "used")

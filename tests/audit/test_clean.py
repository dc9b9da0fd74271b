"""What is right is found right, while it moves on and after it was trimmed."""

import asyncio
import random

import pytest

from contracts.store import keys
from tests.archivist.rig import AT_ONCE, POOL, Pool
from tests.audit.rig import Lived


async def test_a_pool_that_was_left_alone_is_right(lived: Lived) -> None:
    verdict = await lived.verify()

    assert (verdict.findings.kept, verdict.ok, verdict.chain_ok) == ([], True, True)
    assert [each.sample for each in verdict.projections] == [[], [], [], []]
    assert {each.name: each.rows for each in verdict.projections} == {
        "jobs": 13, "lists": 13, "usage": 3, "deliveries": 1
    }  # fmt: skip
    assert verdict.events == len(await lived.entries())
    assert verdict.archived > 20


async def test_it_is_right_as_well_when_the_log_is_trimmed(lived: Lived) -> None:
    await lived.trim_all()

    verdict = await lived.verify()

    assert (verdict.findings.kept, verdict.ok) == ([], True)
    assert len(await lived.entries()) < verdict.events


async def test_jobs_that_come_go_and_are_forgotten_meanwhile_are_no_finding(pool: Pool) -> None:
    """Each batch is compared at the position at which it was read."""
    stop, chance = asyncio.Event(), random.Random(6)

    async def work() -> None:
        waiting: list[str] = []
        while not stop.is_set():
            waiting += [await pool.job() for _ in range(3)]
            for _ in range(2):
                await pool.cancel(waiting.pop(chance.randrange(len(waiting))))

    async def archive() -> None:
        archivist = pool.archivist(config=AT_ONCE)
        while not stop.is_set():
            await pool.snapshot_here()
            await pool.plan()
            await archivist.run_once()
            await asyncio.sleep(0)

    busy = [asyncio.create_task(work()), asyncio.create_task(archive())]
    for _ in range(5):
        verdict = await Lived(pool).verify()
        assert (verdict.findings.kept, [each.sample for each in verdict.projections]) == ([], [[], [], [], []])
    stop.set()
    await asyncio.gather(*busy)
    assert verdict.events > 50


@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_a_log_that_begins_late_leaves_its_jobs_unknown(pool: Pool, is_trimmed: bool) -> None:
    """Without an archive what was trimmed cannot be known: that is no finding, and nothing is claimed of those jobs."""
    first = await pool.job()
    await pool.job()
    await pool.cancel(first)
    if is_trimmed:
        second, _ = (await Lived(pool).entries())[1]
        await pool.store.client.xtrim(keys.log(POOL), minid=second, approximate=False)
        await pool.store.client.hset(keys.meta(POOL), "trimmed", second)

    verdict = await Lived(pool).verify()

    assert verdict.ok
    assert {each.name: each.unknown for each in verdict.projections} == {
        "jobs": int(is_trimmed), "lists": 0, "usage": int(is_trimmed), "deliveries": 0
    }  # fmt: skip

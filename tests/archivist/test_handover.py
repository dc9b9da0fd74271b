"""Leader and archivist: who forgets and trims, without a job forgotten twice; and a log that open jobs do not pin."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

from contracts.archive import ArchiveTail
from contracts.store import Store, keys
from services.scheduler.retention import Retention
from services.scheduler.snapshots import fold_and_keep, load_state
from tests.archivist.rig import AT_ONCE, POOL, Pool
from tests.scheduler.rig import CONFIG, Worker, candidate, eventually, submit, until, with_rules

FORGETS = with_rules(replace(CONFIG, snapshot_entries=200, snapshot_ms=500), retention=Retention(0, 0))
FAR_MS = 4_000_000_000_000


@contextlib.asynccontextmanager
async def archiving(pool: Pool) -> AsyncIterator[None]:
    """An archivist works while the context lasts."""
    stop = asyncio.Event()
    archivist = asyncio.create_task(pool.archivist(config=AT_ONCE).follow(stop))
    try:
        yield
    finally:
        stop.set()
        await archivist


@contextlib.asynccontextmanager
async def planning(pool: Pool) -> AsyncIterator[None]:
    """A notifier reads along while the context lasts."""

    async def plan() -> None:
        while True:
            if not await pool.plan():
                await asyncio.sleep(0.01)

    task = asyncio.create_task(plan())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def forgotten(pool: Pool) -> Counter[str]:
    entries = [record.entry() async for batch in pool.archive.read(POOL, None) for record in batch]
    return Counter(entry.subject for entry in entries if getattr(entry, "type", "") == "job.forgotten")


async def test_each_job_is_forgotten_once_by_the_leader_or_by_an_archivist_that_came(
    store: Store, store_url: str, pool: Pool
) -> None:
    async with (
        candidate(store_url, FORGETS) as leader,
        (await Worker(store).register()).beating() as worker,
        planning(pool),
    ):
        before = [await submit(store) for _ in range(20)]
        assert [await worker.run_next() for _ in before] == before
        await until(lambda: len(leader.state.jobs) < 20)
        async with archiving(pool):
            after = [await submit(store) for _ in range(30)]
            assert [await worker.run_next() for _ in after] == after
            await until(lambda: not leader.state.jobs)
            await until(lambda: leader.leader is not None and leader.leader.watch.is_archived)
            last = await submit(store)
            assert await worker.run_next() == last
            await until(lambda: not leader.state.jobs)

        assert await forgotten(pool) == Counter([*before, *after, last])
        assert leader.state.mismatches == 0
        assert await store.client.zcard(keys.ended(POOL, "completed")) == 0


async def test_an_open_job_does_not_pin_the_log_and_is_read_from_the_archive(
    store: Store, store_url: str, pool: Pool
) -> None:
    """why.md 7: a job with a run-at time far away kept the whole log."""
    waits = await submit(store, run_at_ms=FAR_MS)
    async with (
        candidate(store_url, FORGETS) as leader,
        (await Worker(store).register()).beating() as worker,
        planning(pool),
    ):
        async with archiving(pool):
            for _ in range(3):
                jobs = [await submit(store) for _ in range(60)]
                assert [await worker.run_next() for _ in jobs] == jobs
            await until(lambda: set(leader.state.jobs) == {waits})
            await eventually(lambda: store.client.xlen(keys.log(POOL)), lambda length: length < 600)
            await eventually(lambda: store.client.hget(keys.meta(POOL), "trimmed"), lambda mark: mark is not None)

        (first, _), *_rest = await store.client.xrange(keys.log(POOL), count=1)
        lacking = await store.jobs.history(POOL, waits)
        store.jobs.below = pool.archive.below
        whole = await store.jobs.history(POOL, waits)
        assert lacking is not None
        assert not lacking.complete
        assert whole is not None
        assert [entry.type for entry in whole.entries] == ["job.created", "job.scheduled"]
        assert whole.entries[0].position < first.decode()
        assert whole.folded() == whole.state

    store.archived_tail = partial(ArchiveTail, pool.archive, store)
    await store.client.delete(keys.snapshot(POOL))  # of another version, or lost
    assert await fold_and_keep(store, POOL)
    again = await load_state(store, POOL)
    assert set(again.jobs) == {waits}
    assert again.jobs[waits] == leader.state.jobs[waits]

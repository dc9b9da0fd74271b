"""Forgetting, trimming and snapshots over a real store: memory stays bounded, and nothing that is needed goes."""

from dataclasses import replace

from contracts.store import Store, keys
from contracts.store.log import GroupReader
from services.scheduler.fold.snapshot import dump
from services.scheduler.retention import Retention
from services.scheduler.snapshots import keep_state, load_state
from tests.scheduler.rig import CONFIG, POOL, Log, Worker, candidate, eventually, submit, until, with_rules

AT_ONCE = with_rules(replace(CONFIG, snapshot_entries=200, snapshot_ms=500), retention=Retention(0, 0))


class Notifier:
    """Stands in for the notifier: reads everything, plans nothing, acknowledges."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader: GroupReader = store.group(POOL, keys.GROUP_NOTIFIER, "n1")

    async def read_all(self) -> None:
        while messages := await self._reader.read(count=500, block_ms=1):
            positions = [message.position for message in messages]
            await self._store.deliveries.plan(POOL, keys.GROUP_NOTIFIER, [], positions)


async def test_ended_jobs_are_forgotten_and_the_log_is_trimmed_behind_them(store: Store, store_url: str) -> None:
    notifier = Notifier(store)
    async with candidate(store_url, AT_ONCE) as leader, (await Worker(store).register()).beating() as worker:
        longest = 0
        for _ in range(8):
            jobs = [await submit(store) for _ in range(60)]
            assert [await worker.run_next() for _ in jobs] == jobs
            await notifier.read_all()
            longest = max(longest, await store.client.xlen(keys.log(POOL)))
        await notifier.read_all()

        await until(lambda: not leader.state.jobs)
        await notifier.read_all()
        # 480 jobs of 6 events each; the server trims whole nodes of 100
        await eventually(lambda: store.client.xlen(keys.log(POOL)), lambda length: length < 500)
        assert longest < 480 * 6
        assert await store.client.exists(keys.job(POOL, jobs[0]), keys.body(POOL, jobs[0])) == 0
        assert await store.client.ttl(keys.admitted(POOL, jobs[0])) > 0
        assert await store.jobs.page(POOL, "t_a") == []


async def test_nothing_is_forgotten_before_the_notifier_has_seen_it(store: Store, store_url: str) -> None:
    log = Log(store)
    async with candidate(store_url, AT_ONCE) as leader, (await Worker(store).register()).beating() as worker:
        first = await submit(store)
        assert await worker.run_next() == first
        await log.wait_for("job.completed", first)
        for _ in range(5):  # many turns later it is still there
            job_id = await submit(store)
            assert await worker.run_next() == job_id
        assert first in leader.state.jobs
        assert await store.client.exists(keys.job(POOL, first)) == 1

        await Notifier(store).read_all()

        await log.wait_for("job.forgotten", first)


async def test_a_candidate_starts_from_the_snapshot_and_folds_only_what_came_after(
    store: Store, store_url: str
) -> None:
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        jobs = [await submit(store) for _ in range(5)]
        await worker.run_next()
        await until(lambda: jobs[-1] in leader.state.jobs)
        assert await keep_state(store, POOL, leader.state)
        await worker.run_next()

        kept = await load_state(store, POOL)
        assert kept.entries_read > 0
        async with candidate(store_url) as late:
            await until(lambda: late.state.position == leader.state.position)
            assert dump(late.state) == dump(leader.state)


async def test_the_pointer_never_moves_back_and_old_parts_go(store: Store, store_url: str) -> None:
    async with candidate(store_url) as leader:
        await submit(store)
        await until(lambda: leader.state.admitted == 1)
        older = await load_state(store, POOL)
        assert await keep_state(store, POOL, leader.state)

        assert not await keep_state(store, POOL, older)
        assert not await keep_state(store, POOL, leader.state)

        assert (await store.snapshots.pointer(POOL)).position == leader.state.position
        lasting = [
            key
            async for key in store.client.scan_iter(keys.snapshot_parts(POOL, "*"))
            if await store.client.ttl(key) < 0
        ]
        assert len(lasting) == 1


async def test_a_large_state_is_kept_in_parts(store: Store) -> None:
    data = bytes(range(256)) * 10_000
    assert await store.snapshots.keep(POOL, "s1", "5-0", data)

    loaded = await store.snapshots.load(POOL)

    assert loaded is not None
    assert loaded[1] == data
    assert await store.client.llen(keys.snapshot_parts(POOL, "s1")) == 3


async def test_a_standby_keeps_snapshots(store: Store, store_url: str) -> None:
    patient = replace(CONFIG, snapshot_entries=10)
    async with candidate(store_url, patient) as leader:
        await until(lambda: leader.is_leading)
        async with candidate(store_url, patient) as standby, (await Worker(store).register()).beating() as worker:
            for _ in range(4):
                await submit(store)
                await worker.run_next()

            pointer = await eventually(lambda: store.snapshots.pointer(POOL), lambda pointer: pointer.id != "")

            assert not standby.is_leading
            assert pointer.position != "0-0"

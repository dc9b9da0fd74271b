"""Two candidates, lost replies, outages: who leads, and that nobody else changes anything."""

import asyncio
import time

from contracts import events as ev
from contracts.store import Store, Word, keys
from contracts.store.leadership import build_turn
from services.scheduler.decisions import observe
from services.scheduler.fold.snapshot import dump
from services.scheduler.verify import verify
from tests.scheduler.rig import CONFIG, POOL, Log, Served, Worker, candidate, eventually, submit, submit_many, until
from tests.servers import Server
from tests.store.lossy import LossyProxy


async def test_a_standby_folds_along_and_takes_over_when_the_leader_resigns(store: Store, store_url: str) -> None:
    log, first = Log(store), Served(store_url, CONFIG)
    leader = await first.open()
    await until(lambda: leader.is_leading)
    async with candidate(store_url) as standby, (await Worker(store).register()).beating() as worker:
        running, waiting = await submit(store), await submit(store)
        attempt = await worker.start(await worker.offer())
        reserved = await worker.offer()
        end = await log.wait_for("job.assigned", waiting)
        await until(lambda: standby.state.position == leader.state.position == end.position)
        assert not standby.is_leading
        assert dump(standby.state) == dump(leader.state)

        left_s = time.monotonic()
        await first.leave()
        await until(lambda: standby.is_leading)

        assert time.monotonic() - left_s < 3
        await worker.complete(attempt)
        await worker.complete(await worker.start(reserved))
        last = await submit(store)
        assert await worker.run_next() == last
        await log.wait_for("job.completed", count=3)
        assert log.types(running).count("job.started") == 1
        assert log.types(waiting).count("job.assigned") == 1
        assert verify(log.entries) == []


async def test_a_turn_of_a_former_leader_is_fenced_and_changes_nothing(store: Store) -> None:
    await store.leadership.lead(POOL, "former", 1)
    await eventually(lambda: store.leadership.lead(POOL, "present", 60_000), lambda answer: answer[0])
    writes = [observe(ev.PolicyApplied(position="1-0", weights={"t_a": 9.0})).write]
    end = await store.end_of_log(POOL)

    late = await store.leadership.turn(build_turn(POOL, "former", 1, 60_000, writes, cursor=end, entries_read=0))

    assert late.word is Word.FENCED
    assert await store.end_of_log(POOL) == end


async def test_turns_whose_replies_are_lost_are_sent_again_and_made_once(store: Store, store_server: Server) -> None:
    """The leader speaks through a proxy that carries out its calls and loses their replies."""
    proxy, log = LossyProxy(store_server.socket), Log(store)
    await proxy.open()
    async with candidate(proxy.url) as leader, (await Worker(store, slots=2).register()).beating() as worker:
        await until(lambda: leader.is_leading)
        ran, submitted = [], []
        for _ in range(12):
            proxy.drop = 4  # more than the client repeats by itself
            submitted += await submit_many(store, 3)
            ran += [await worker.run_next() for _ in range(3)]

        assert sorted(ran) == submitted
        await log.wait_for("job.completed", count=len(submitted))
        for job_id in submitted:
            assert log.types(job_id).count("job.assigned") == 1
        assert verify(log.entries) == []
        assert proxy.dropped >= 24
        assert await store.client.hget(keys.leader(POOL), "epoch") == b"1"
    await proxy.close()


async def test_an_outage_longer_than_the_lease_costs_no_worker_its_attempts(own_server: Server) -> None:
    """Field cases 45, 117, 120 and 128: the store is away for two leases; then all goes on with the same attempts."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    log = Log(store)
    worker = await Worker(store, slots=4).register()
    async with candidate(own_server.url) as leader:
        async with worker.beating():
            jobs = await submit_many(store, 4)
            attempts = [await worker.start(await worker.offer()) for _ in jobs]
        soon_ms = int((await store.end_of_log(POOL)).partition("-")[0]) + 500
        due = await submit(store, run_at_ms=soon_ms)
        assert leader.leader is not None
        watch = leader.leader.watch
        looked = watch.look_count
        await until(lambda: due in leader.state.jobs and watch.look_count > looked + 1)

        own_server.stop()
        await asyncio.sleep(2 * CONFIG.worker_lease_ms / 1000)  # the outage itself
        own_server.start()

        back_s = time.monotonic()
        # the leader is back before the worker: it sees a counter that stood still all the while
        looked = watch.look_count
        await until(lambda: watch.look_count > looked + 1)
        async with worker.beating():
            for attempt in attempts:
                assert await worker.complete(attempt) is Word.APPLIED
            assert await worker.run_next() == due
        assert time.monotonic() - back_s < 10
        await log.wait_for("job.completed", due)
        assert log.of("job.lease_lost") == []
        assert log.of("worker.lost") == []
    await store.aclose()


async def test_a_store_that_takes_no_writes_costs_no_worker_its_attempts(own_server: Server) -> None:
    """A full disk: reads go on and show counters that stand still, as no heartbeat can be written."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    worker = await Worker(store).register()
    async with candidate(own_server.url) as leader:
        async with worker.beating():
            await submit(store)
            attempt = await worker.start(await worker.offer())
        assert leader.leader is not None
        watch = leader.leader.watch

        await store.client.config_set("min-replicas-to-write", 1)
        await asyncio.sleep(2 * CONFIG.worker_lease_ms / 1000)  # the refusal itself
        before = await _turns(store)
        await store.client.config_set("min-replicas-to-write", 0)

        # the leader is back before the worker: it reads and writes, and the counter stood still all the while
        looked = watch.look_count
        await until(lambda: watch.look_count > looked + 1)
        await eventually(lambda: _turns(store), lambda turns: turns > before + 1)
        async with worker.beating():
            assert await worker.beat() is Word.APPLIED
            assert await worker.complete(attempt) is Word.APPLIED
    await store.aclose()


async def _turns(store: Store) -> int:
    return int(await store.client.hget(keys.leader(POOL), "turn") or 0)

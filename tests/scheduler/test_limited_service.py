"""External limits, pauses and budgets through a real store: what is asked of {_sys}, how often, and who starts when."""

import asyncio

from contracts import events as ev
from contracts.job import JobStatus
from contracts.positions import entry_ms
from contracts.store import Store, Word
from services.scheduler.verify import verify
from tests.scheduler.rig import PATIENT, POOL, Log, Worker, candidate, submit, submit_many, until

ONE = {"provider": 1}


async def define(store: Store, rate: int, window_ms: int, name: str = "provider") -> None:
    await store.directory.open()
    await store.directory.change(lambda _: ev.ResourceDefined(resource=name, rate=rate, window_ms=window_ms), name)


async def test_starts_keep_to_the_rate_and_none_is_lost(store: Store, store_url: str) -> None:
    """Field cases 25 and 26: the limit holds what draws on it, at its rate; every job ends."""
    log = Log(store)
    await define(store, rate=5, window_ms=500)
    async with candidate(store_url), (await Worker(store, slots=4).register()).beating() as worker:
        jobs = [await submit(store, resources=ONE) for _ in range(15)]
        for _ in jobs:
            await worker.run_next()

        await log.wait_for("job.completed", count=15)
        starts_ms = [int(str(entry.raw_data()["nowMs"])) for entry in log.of("job.assigned")]
        assert len(starts_ms) == 15
        for at_ms in starts_ms:
            assert sum(at_ms - 500 < other_ms <= at_ms for other_ms in starts_ms) <= 5
        assert starts_ms[-1] - starts_ms[0] < 2_500
        assert {entry.raw_data()["attempt"] for entry in log.of("job.started")} == {1}
        assert verify(log.entries) == []


async def test_a_large_backlog_behind_a_limit_leaves_the_store_in_peace(store: Store, store_url: str) -> None:
    """Field case 28: the rate of commands does not depend on how many wait, and nobody's attempt is counted."""
    await define(store, rate=1, window_ms=1_000)
    log = Log(store)
    async with (
        candidate(store_url, PATIENT) as leader,
        (await Worker(store, slots=4).register()).beating(0.5) as worker,
    ):
        working = asyncio.create_task(_run_all(worker))
        await submit_many(store, 20, resources=ONE)
        few = await _commands_of_two_seconds(store)
        await submit_many(store, 2_000, resources=ONE)
        await until(lambda: leader.state.admitted >= 2_020)
        many = await _commands_of_two_seconds(store)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

        assert many < few + 100
        assert many < 400
        assert all(job.attempt <= 1 for job in leader.state.jobs.values())
        await log.wait_for("job.completed", count=3)


async def _run_all(worker: Worker) -> None:
    while True:
        await worker.run_next()


async def test_a_429_pauses_the_limit_for_every_pool_and_is_written_down(store: Store, store_url: str) -> None:
    """Field case 34: what one worker hears of the provider, all obey; the job keeps its attempts and its place."""
    log = Log(store)
    await define(store, rate=100, window_ms=1_000)
    async with candidate(store_url), (await Worker(store, slots=2).register()).beating() as worker:
        first, second = await submit(store, resources=ONE), await submit(store, resources=ONE)
        attempt = await worker.start(await worker.offer())
        other = await worker.start(await worker.offer())
        third = await submit(store, resources=ONE)
        back = ev.JobQueued(
            reason="rate_limited", attempt=0, worker_id=worker.id, resource="provider", retry_after_ms=1_500
        )
        worker.held = [held for held in worker.held if held[0] != attempt.job_id]
        assert (await store.attempts.emit(attempt, [ev.JobDeviceReleased(gpu_ms=5), back])).word is Word.APPLIED

        paused = await log.wait_for("resource.paused")
        await worker.complete(other)
        refused_ms = entry_ms((await log.wait_for("job.queued", first)).position)
        assert refused_ms + 1_500 <= int(str(paused.raw_data()["untilMs"])) < refused_ms + 2_000
        assert (await store.resources.grant("provider", 100, 1_000, 1)).n == 0
        again = [await worker.run_next(), await worker.run_next()]

        assert again == [first, third]
        await log.wait_for("job.completed", third)
        for entry in log.of("job.assigned")[-2:]:
            assert entry_ms(entry.position) >= refused_ms + 1_500
        assert log.of("job.started", first)[-1].raw_data()["attempt"] == 1
        assert second in {entry.subject for entry in log.of("job.completed")}


async def test_a_paused_pool_offers_nothing_until_it_is_resumed(store: Store, store_url: str) -> None:
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        await store.directory.change(lambda _: ev.PoolPaused(pool=POOL, reason="upgrade", by="op"), POOL)
        await until(lambda: leader.state.paused)
        job_id = await submit(store)
        await until(lambda: job_id in leader.state.jobs)
        assert leader.state.jobs[job_id].status is JobStatus.QUEUED

        await store.directory.change(lambda _: ev.PoolResumed(pool=POOL, reason="done", by="op"), POOL)

        assert await worker.run_next() == job_id
        applied = [entry.position for entry in log.of("policy.applied")]
        await log.wait_for("job.completed", job_id)
        assert len(applied) <= 2


async def _commands_of_two_seconds(store: Store) -> int:
    """Count the commands the server runs in two seconds, those inside its functions as well."""
    before = (await store.client.info("stats"))["total_commands_processed"]
    await asyncio.sleep(2)  # the passing of time is what is measured
    after = (await store.client.info("stats"))["total_commands_processed"]
    return int(after - before)

"""Jobs reach workers: one leader, real store, workers under the test's control."""

from contracts.job import JobStatus
from contracts.store import Store, Word
from tests.scheduler.rig import Log, Worker, candidate, submit, until


async def test_a_job_is_offered_to_a_registered_worker_and_the_fold_follows_it_to_its_end(
    store: Store, store_url: str
) -> None:
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        job_id = await submit(store, vram_bytes=5)

        offer = await worker.offer()
        attempt = await worker.start(offer)
        assert await worker.complete(attempt) is Word.APPLIED

        assigned = await log.wait_for("job.assigned", job_id)
        data = assigned.raw_data()
        assert data["workerId"] == worker.id
        assert (data["policy"], data["i"], data["of"], data["bytes"], data["why"]) == ("sfq", 0, 1, 5, "idle")
        await until(lambda: leader.state.jobs[job_id].status is JobStatus.COMPLETED)
        assert leader.state.policy.waiting_count == 0


async def test_a_hundred_jobs_run_in_the_order_of_their_admission(store: Store, store_url: str) -> None:
    """Field case 20: fifty numbered jobs on one device start in the order of their submission."""
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        submitted = [await submit(store) for _ in range(50)]

        ran = [await worker.run_next() for _ in submitted]

        assert ran == submitted

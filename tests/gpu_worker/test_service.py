"""The supervisor on a real store: from an offer to the last event."""

from pathlib import Path

from contracts.store import Store
from tests.gpu_worker.stage import staff


async def test_an_offer_becomes_a_result(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path) as own:
        job_id = await own.stage.admit("echo", prompt="hello", steps=3)
        await own.stage.offer(job_id, own.worker_id)
        await own.stage.saw("job.completed", job_id)
        assert await own.stage.types(job_id) == [
            "job.created",
            "job.assigned",
            "job.started",
            "model.load_started",
            "model.load_completed",
            "job.device_released",
            "job.completed",
        ]
        assert await own.stage.results(job_id) == [{"result": {"inputs": {"prompt": "hello", "steps": 3}}}]

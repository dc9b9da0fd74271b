"""The store comes back without its last second: a fold of what was lost is thrown away, and another one made."""

import asyncio

import structlog

from contracts.store import Store, keys
from services.scheduler import __main__ as process
from tests.scheduler.rig import CONFIG, POOL, Worker, eventually, submit
from tests.store.test_anchored import cut_readers


async def test_a_scheduler_folds_again_what_the_store_still_has(store: Store) -> None:
    """why.md 18: a job that is in no log any more takes no place, and the next one is offered."""
    stop, logged = asyncio.Event(), []
    await store.directory.open()
    await store.open_pool(POOL)
    log = structlog.wrap_logger(None, processors=[lambda _, name, event: _note(logged, event)])
    running = asyncio.create_task(process._run_pool(store, POOL, CONFIG, log, stop))
    async with (await Worker(store).register()).beating() as worker:
        lost = await submit(store)
        offer = await worker.offer()
        assert offer.job_id == lost
        entries = await store.client.xrange(keys.log(POOL))
        of_job = [position for position, fields in entries if fields[b"j"] == lost.encode()]
        await store.client.xdel(keys.log(POOL), *of_job)
        await store.client.delete(keys.job(POOL, lost), keys.body(POOL, lost))
        await store.client.hdel(keys.worker(POOL, worker.id), "d0")
        await cut_readers(store)

        again = await submit(store)

        assert (await worker.offer()).job_id == again
        await eventually(lambda: _told(logged), lambda told: "log_forked" in told)
    stop.set()
    await asyncio.wait_for(running, 20)


def _note(logged: list[str], event: dict[str, object]) -> dict[str, object]:
    logged.append(str(event["event"]))
    raise structlog.DropEvent


async def _told(logged: list[str]) -> list[str]:
    return logged

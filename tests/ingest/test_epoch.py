"""Positions name the epoch of the log: when it changes under a running process, they do, too."""

import asyncio
from pathlib import Path

from contracts.store import Store, keys
from tests.ingest.api import Api, running_api, settings_for
from tests.store.play import POOL, Play

WAIT_S = 20


async def test_a_new_epoch_shows_in_positions_without_a_restart(api: Api, play: Play) -> None:
    """why.md 18: after a loss, positions of the log before must be told apart from those of this one."""
    job_id = await api.job()
    before = await position(api, job_id)
    assert (await api.get("/v1/events")).body["data"][0]["position"] == before

    await api.store.client.hincrby(keys.meta(POOL), "epoch", 1)
    async with asyncio.timeout(WAIT_S):
        while (after := await position(api, job_id)) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert (await api.get("/v1/events")).body["data"][0]["position"] == after
    assert (before.split(".")[1], after.split(".")[1]) == ("1", "2")
    assert before.split(".")[2] == after.split(".")[2]


async def test_the_epoch_of_a_pool_that_no_model_names_any_more_is_noticed_as_well(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    await store.directory.open()
    await store.directory.pool("former")
    await store.open_pool("former")
    async with running_api(settings_for(store_url, tmp_path)) as api:
        await store.client.hset(keys.meta("former"), "epoch", 3)
        async with asyncio.timeout(WAIT_S):
            while api.service.context.pools["former"].epoch != 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def position(api: Api, job_id: str) -> str:
    return str((await api.get(f"/v1/jobs/{job_id}/events")).body["data"][0]["position"])

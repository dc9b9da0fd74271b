"""How an archive does is read with the other vitals of the store."""

from contracts.store import keys
from contracts.store.vitals import read_vitals
from services.ingest.metrics import IngestMetrics
from tests.archivist.rig import POOL, Pool


async def test_what_is_archived_and_how_far_it_is_behind_is_told(pool: Pool) -> None:
    await pool.job()
    without = await read_vitals(pool.store.client, (POOL,))
    await pool.archivist().run_once()
    await pool.store.client.hset(keys.archive(POOL), "until", 0)
    await pool.archivist().run_once()
    even = await read_vitals(pool.store.client, (POOL,))
    await pool.store.client.xadd(keys.log(POOL), {"t": "x", "j": "y", "d": "{}"})
    await pool.store.client.hset(keys.archive(POOL), "upto", "5-0")
    behind = await read_vitals(pool.store.client, (POOL,))

    metrics = IngestMetrics()
    metrics.note_archives(behind)
    assert without.archives == {}
    assert even.archives[POOL].entries >= 1
    assert even.archives[POOL].until_ms > even.now_ms
    assert behind.archives[POOL].behind_ms >= 0
    assert b'headrace_archive_entries{pool="default"}' in metrics.render()
    assert b'headrace_archive_behind_seconds{pool="default"}' in metrics.render()


async def test_a_new_epoch_of_the_log_is_told(pool: Pool) -> None:
    before = await read_vitals(pool.store.client, (POOL,))
    await pool.archivist().run_once()
    token = (await pool.store.client.hget(keys.archive(POOL), "token")).decode()
    assert await pool.store.archive.fork(POOL, token, 1, "5-0") == 2
    assert await pool.store.archive.fork(POOL, token, 1, "5-0") == 2  # the answer was lost: it is the same fork
    after = await read_vitals(pool.store.client, (POOL,))

    assert (before.epochs, after.epochs) == ({POOL: 1}, {POOL: 2})

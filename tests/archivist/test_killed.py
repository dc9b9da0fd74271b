"""The archivist as a process, killed at the moments that matter, and told what it must refuse."""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from contracts.store import Store, keys
from tests.archivist.rig import POOL, Pool, in_order
from tests.scheduler.rig import PATIENCE_S, eventually, until

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "HEADRACE_ARCHIVE__SEAL_S": "0.05",
    "HEADRACE_ARCHIVE__SEAL_ENTRIES": "5",
    "HEADRACE_ARCHIVE__SETTLE_S": "0",
    "HEADRACE_RETENTION__COMPLETED_S": "0",
    "HEADRACE_RETENTION__FAILED_S": "0",
}
ROUNDS = int(os.environ.get("HEADRACE_TEST_KILLS", "3"))


@contextlib.asynccontextmanager
async def archivist(store: Store, folder: Path, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An archivist process; killed at the end if it still runs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    environment |= SETTINGS | {"HEADRACE_REDIS__URL": store.url, "HEADRACE_ARCHIVE__URL": str(folder)} | settings
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.archivist", cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def segments(pool: Pool) -> set[str]:
    return {path.name for path in (pool.folder / POOL / "1").glob("*.ndjson.zst")}


async def write(pool: Pool, jobs: int) -> None:
    for _ in range(jobs):
        await pool.cancel(await pool.job())
    await pool.look()
    await pool.snapshot_here()
    await pool.plan()


async def test_a_process_that_is_killed_again_and_again_loses_and_doubles_nothing(store: Store, pool: Pool) -> None:
    """Killed when a segment has just got its name, when it has just been said, or when it likes to be."""
    chance = random.Random(7)
    for round_number in range(ROUNDS):
        await store.client.hset(keys.archive(POOL), "until", 0)  # the lease of the one before need not be waited for
        await write(pool, chance.randrange(5, 30))
        known = segments(pool)
        upto = await store.client.hget(keys.archive(POOL), "upto")
        async with archivist(store, pool.folder) as process:
            if round_number % 3 == 0:
                await until(lambda known=known: segments(pool) > known)
            elif round_number % 3 == 1:
                await eventually(
                    lambda: store.client.hget(keys.archive(POOL), "upto"), lambda now, was=upto: now != was
                )
            else:
                await write(pool, 3)
                await eventually(
                    lambda: store.client.hget(keys.archive(POOL), "upto"), lambda now, was=upto: now != was
                )
                await write(pool, chance.randrange(1, 5))
            process.kill()
            await process.wait()
        await pool.look()

    await store.client.hset(keys.archive(POOL), "until", 0)
    end = await store.end_of_log(POOL)
    async with archivist(store, pool.folder) as process:
        await eventually(lambda: store.archive.manifest(POOL), lambda m: m is not None and m.upto >= end)
        # configuration is archived, too, and never trimmed
        await eventually(lambda: store.archive.manifest(keys.SYSTEM), lambda m: m is not None and m.count > 0)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
    await pool.look()

    assert await pool.everything() == in_order(pool.seen)
    archived = await pool.archived()
    assert archived == in_order(pool.seen)[: len(archived)]
    assert not list(pool.folder.rglob("aside/*"))
    assert await store.client.hget(keys.meta(keys.SYSTEM), "trimmed") is None


async def test_another_directory_than_the_logs_own_is_refused(store: Store, pool: Pool, tmp_path: Path) -> None:
    """A second host would have a directory of its own: two archives of one log, each with holes."""
    await write(pool, 5)
    async with archivist(store, pool.folder) as process:
        await eventually(lambda: store.archive.manifest(POOL), lambda m: m is not None and m.count > 0)
        process.send_signal(signal.SIGTERM)
        await process.wait()

    async with archivist(store, tmp_path / "of_another_host") as second:
        said = await asyncio.wait_for(second.communicate(), PATIENCE_S)

    assert second.returncode == 2
    assert b"HEADRACE_ARCHIVE__URL: the archive of pool" in said[1]

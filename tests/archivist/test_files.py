"""Files whose time is over are removed by the archivist, with an event each; everything else stays."""

import time
from pathlib import Path

import pytest
import structlog

from contracts.artifacts import Upload
from contracts.audit import verify
from contracts.errors import Unavailable
from contracts.ids import artifact_id, mint_job_id
from contracts.store import keys
from services.archivist.config import ArchivistConfig
from services.archivist.erasing import PoolSweeper
from services.archivist.pool import PoolArchivist
from tests.archivist.rig import POOL, TENANT, Fault, Pool
from tests.scheduler.rig import eventually

LATER_MS = time.time_ns() // 1_000_000 + 3_600_000


def put(pool: Pool, folder: Path, number: int, expires_at_ms: int) -> str:
    job_id = mint_job_id(1_764_457_200_000, number, "aa")
    (folder / "file").write_bytes(b"x")
    upload = Upload(
        id=artifact_id(job_id, 1, 0), pool=POOL, job_id=job_id, tenant_id=TENANT, name="a.png", kind="image",
        variant="original", width=None, height=None, created_ms=1, expires_at_ms=expires_at_ms,
    )  # fmt: skip
    return pool.shelf.put(upload, folder / "file").id


async def expired(pool: Pool) -> list[str]:
    entries = await pool.store.client.xrange(keys.log(POOL))
    return [fields[b"j"].decode() for _, fields in entries if fields[b"t"] == b"artifact.expired"]


async def test_a_file_goes_when_its_own_time_is_over_and_what_nobody_knows_with_it(pool: Pool, tmp_path: Path) -> None:
    """Killed between event and removal it is removed the next time, and said once."""
    over, living = put(pool, tmp_path, 1, 2), put(pool, tmp_path, 2, LATER_MS * 2)
    pool.shelf.objects.put_file(f"{POOL}/job_left/art_half.png", b"x", "image/png")
    pool.shelf.doom(POOL, "job_erased", TENANT, 1)
    young = PoolSweeper(pool.store, pool.archive, pool.shelf, POOL, keep_ms=7_200_000)
    sweeper = PoolSweeper(pool.store, pool.archive, pool.shelf, POOL, keep_ms=0)

    assert await young.sweep(LATER_MS, lambda: True) == 0  # nothing has lain here for that long
    assert await sweeper.sweep(LATER_MS, lambda: False) == 0  # another leads by now
    assert await expired(pool) == []
    remove = pool.shelf.remove

    def dies(*_: object) -> None:
        raise Fault

    pool.shelf.remove = dies  # type: ignore[method-assign]
    with pytest.raises((Unavailable, Fault)):
        await sweeper.sweep(LATER_MS, lambda: True)
    pool.shelf.remove = remove  # type: ignore[method-assign]
    assert [await sweeper.sweep(LATER_MS, lambda: True) for _ in range(2)] == [1, 0]

    assert await expired(pool) == [over]
    found = [each.key.rpartition("/")[2] for each in pool.shelf.objects.list(f"{POOL}/")]
    assert sorted(found) == [f"{living}.json", f"{living}.png"]
    assert (await verify(pool.store, pool.archive, POOL)).ok


async def test_the_archivist_sweeps_by_itself(pool: Pool, tmp_path: Path) -> None:
    over = put(pool, tmp_path, 1, 2)
    config = ArchivistConfig(artifacts_ms=0, sweep_ms=1)
    archivist = PoolArchivist(pool.store, pool.archive, pool.shelf, "here", POOL, config, structlog.get_logger())

    async def look() -> list[str]:
        await archivist.run_once()
        return await expired(pool)

    await eventually(look, lambda found: found == [over])
    await eventually(look, lambda _: not list(pool.shelf.objects.list(f"{POOL}/")))

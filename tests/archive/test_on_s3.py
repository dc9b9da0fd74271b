"""The archive in an object store: the same segments, read the same way."""

from collections.abc import Iterator

import pytest

from contracts import ids
from contracts.archive import Archive, SegmentShelf
from contracts.artifacts import open_archive_objects
from contracts.settings import Settings
from contracts.store import keys
from tests.archive.rig import POOL, Log
from tests.artifacts.stores import NEEDS_S3, credentials, s3_server, s3_settings

JOB = ids.mint_job_id(1_764_457_200_000, 1, "aa")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of moto's server."""
    with s3_server() as address:
        yield address


@NEEDS_S3
async def test_segments_lie_in_a_bucket_as_in_a_directory(
    log: Log, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(monkeypatch.setenv)
    objects = open_archive_objects(Settings.model_validate({"archive": s3_settings(endpoint, "log")}))
    log.shelf, log.archive = SegmentShelf(objects), Archive(log.store, objects)
    await log.write(12)
    await log.seal(5)
    await log.seal(4)
    await log.snapshot_here()
    await log.trim()

    (first, second) = await log.archive.segments(POOL)
    log.shelf.put_bodies(POOL, first, {JOB: b"{}\n"})
    assert [record.position for record in await log.read(None)] == log.written
    assert await log.archive.body(POOL, JOB) == b"{}\n"
    assert len(await log.store.client.xrange(keys.log(POOL))) == 4
    log.shelf.set_aside(POOL, second)
    assert log.shelf.names(POOL) == [first]

"""Worker and ingest on an S3-compatible store: results go there, callers are sent there, credentials stay at home."""

import os
import time
from pathlib import Path

import pytest

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.signed_url import sign_path
from contracts.store import Store
from tests.artifacts import stores
from tests.gpu_worker.stage import POOL, staff
from tests.ingest.api import running_api, settings_for

pytestmark = stores.NEEDS_S3

AUTHOR = """
import os

def run(model, inputs, job):
    print(sorted(os.environ.items()), flush=True)
    job.artifact("picture.png", b"pixels", kind="image")
    job.artifact("environment.txt", repr(sorted(os.environ.items())).encode())
    return {"names": sorted(os.environ)}
"""


async def test_results_go_to_the_bucket_and_callers_are_sent_there(
    store: Store, store_url: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.credentials(monkeypatch.setenv)
    chosen = stores.s3_settings(s3_endpoint)
    shelf = Shelf(stores.open_s3(chosen))
    async with staff(store, tmp_path, shelf=shelf) as own:
        own.serve("echo", AUTHOR)
        job_id = await own.stage.admit("echo")
        await own.stage.offer(job_id, own.worker_id)
        completed = await own.stage.saw("job.completed", job_id)
        assert isinstance(completed, ev.JobCompleted)
        result = str(await own.stage.results(job_id))
        entries = str(await store.client.xrange(f"hr:{{{POOL}}}:log"))
        assert not (own.config.data_dir / "artifacts").exists()

    async with running_api(settings_for(store_url, tmp_path, artifacts=chosen)) as api:
        path = sign_path(api.service.context.secret("urls"), completed.artifacts[0].path, int(time.time()) + 60)
        for method in ("GET", "HEAD"):
            async with api.session.request(method, api.url + path, allow_redirects=False) as sent:
                assert (sent.status, sent.headers["cache-control"]) == (302, "private, no-store")
                assert sent.headers["location"].startswith(s3_endpoint)
        async with api.session.get(api.url + path, headers={"Range": "bytes=2-3"}) as followed:
            assert (followed.status, await followed.read()) == (206, b"xe")
            assert followed.headers["content-type"] == "image/png"

    seen = b"".join(read_all(shelf, artifact) for artifact in completed.artifacts)
    assert b"pixels" in seen
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == stores.SECRET
    for said in (seen.decode(), result, entries):
        assert stores.SECRET not in said
        assert "AWS_" not in said


def read_all(shelf: Shelf, artifact: ev.ArtifactRef) -> bytes:
    record = shelf.find(POOL, artifact.id)
    assert record is not None
    content = shelf.open(POOL, record)
    assert content is not None
    with content:
        return b"".join(iter(content.read, b""))


async def test_a_bucket_that_is_not_there_fails_the_attempt_and_not_the_worker(
    store: Store, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.credentials(monkeypatch.setenv)
    lost = {"url": "s3://no-such-bucket/x", "endpoint": s3_endpoint, "region": "us-east-1", "timeout_s": 5}
    async with staff(store, tmp_path, shelf=Shelf(stores.open_s3(lost))) as own:
        own.serve("echo", AUTHOR)
        job_id = await own.stage.admit("echo")
        await own.stage.offer(job_id, own.worker_id)
        failed = await own.stage.saw("job.attempt_failed", job_id)
        assert isinstance(failed, ev.JobAttemptFailed)
        assert (failed.error.code, failed.error.retryable) == ("artifact_upload_failed", True)
        assert "no-such-bucket" not in str(await own.stage.results(job_id))

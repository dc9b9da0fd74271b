"""Worker and ingest on an S3-compatible store: results go there, callers are sent there, credentials stay at home."""

import os
import signal
import time
from pathlib import Path

import pytest

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.signed_url import sign_path
from contracts.store import Store
from tests.artifacts import stores
from tests.gpu_worker.process import start
from tests.gpu_worker.stage import POOL, Stage, staff
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


async def test_a_workers_credentials_are_in_no_child_log_event_or_file_of_it(
    store: Store, store_url: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real process: what it was started with reaches neither its children nor anything it writes."""
    stores.credentials(monkeypatch.setenv)
    chosen = stores.s3_settings(s3_endpoint)
    (tmp_path / "own.py").write_text(AUTHOR)
    (tmp_path / "any.json").write_text('{"type": "object"}')
    (tmp_path / "pipelines.toml").write_text('[models.echo]\nentry = "own.py"\ninputs = "any.json"\nvram_mib = 64\n')
    settings = {f"artifacts__{name}": str(value) for name, value in chosen.items()}
    settings["pipelines"] = str(tmp_path / "pipelines.toml")
    secrets = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    stage = Stage(store)
    await stage.lead()
    async with await start(store_url, tmp_path, listen=True, variables=secrets, **settings) as process:
        registered = await stage.saw("worker.registered")
        assert isinstance(registered, ev.WorkerRegistered)
        job_id = await stage.admit("echo")
        await stage.offer(job_id, registered.worker_id)
        await stage.saw("job.completed", job_id)
        children = [pid for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == process.pid]
        assert children
        seen = [environment_of(pid) for pid in children]
        process.send(signal.SIGTERM)
        seen.append(await process.errors())
    shelf = Shelf(stores.open_s3(chosen))
    kept = [each.key for each in shelf.objects.list("")]
    assert any(key.endswith("_log.log") for key in kept)
    for key in kept:
        content = shelf.objects.get(key)
        assert content is not None
        with content:
            seen.append(b"".join(iter(content.read, b"")).decode())
    seen.append(str(await store.client.xrange(f"hr:{{{POOL}}}:log")) + str(await stage.results(job_id)))
    for text in seen:
        assert stores.SECRET not in text


def environment_of(pid: str) -> str:
    return Path("/proc", pid, "environ").read_bytes().decode()


def parent_of(pid: str) -> int:
    try:
        return int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0

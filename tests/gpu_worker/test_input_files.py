"""Files that a job is given: fetched or copied by the supervisor before author code runs, or a typed end without it."""

import asyncio
import hashlib
import struct
import threading
import time
from pathlib import Path

import pytest

from contracts import events as ev
from contracts.artifacts import Content, Shelf, Upload
from contracts.artifacts.local import LocalObjects
from contracts.job import JobStatus
from contracts.store import Store
from services.gpu_worker.input_files import InputLimits
from tests.gpu_worker.stage import POOL, TENANT, Staff, staff
from tests.notifier.receiver import Receiver, after, answer, silent

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 4, 4) + bytes(20)
BOMB = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + bytes(20)
LIMITS = InputLimits(10_000, 20_000, 1_000_000, timeout_s=5, allow_private="loopback")
PART = "0" * 26 + "aa"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def stored(own: Staff, folder: Path, content: bytes, name: str = "a.png", **changes: object) -> str:
    """Store a file as an earlier job would have and return its id."""
    facts = {
        "id": f"art_{PART}_1_0", "pool": "other", "job_id": f"job_{PART}", "tenant_id": TENANT, "name": name,
        "kind": "image", "variant": "original", "width": None, "height": None, "created_ms": 1,
        "expires_at_ms": (time.time_ns() // 1_000_000) + 3_600_000,
    }  # fmt: skip
    upload = Upload(**{**facts, **changes})  # type: ignore[arg-type]
    (folder / "made").write_bytes(content)
    own.shelf.put(upload, folder / "made")
    return upload.id


async def test_urls_and_ids_become_paths_of_copies(store: Store, tmp_path: Path) -> None:
    answers = [answer(200, body=PNG), answer(200, body=b"mask"), answer(200, body=b"one"), answer(200, body=b"two")]
    async with staff(store, tmp_path, input_limits=LIMITS) as own, Receiver(answers) as server:
        kept = stored(own, tmp_path, b"earlier result", "x.txt")
        fields = {"image": server.url("/a"), "mask": server.url("/b"), "frames": [server.url("/c"), server.url("/d")]}
        job_id = await own.give("files", artifact_pools={kept: "other"}, inputArtifacts=[kept], **fields)
        completed = await own.stage.saw("job.completed", job_id)

        (result,) = await own.stage.results(job_id)
        contents = [(PNG, ".png"), (b"mask", ""), (b"one", ""), (b"two", ""), (b"earlier result", ".txt")]
        assert result["result"] == {
            "files": [{"sha256": digest(data), "ending": ending} for data, ending in contents], "inside": True,
        }  # fmt: skip
        assert isinstance(completed, ev.JobCompleted)
        record = own.shelf.find("other", kept)
        assert record is not None
        content = own.shelf.open("other", record)
        assert content is not None
        with content:  # author code wrote into its copy
            assert content.read() == b"earlier result"

        # What one job made is the next one's input.
        made = completed.artifacts[0].id
        following = await own.give("files", artifact_pools={made: POOL}, inputArtifacts=[made])
        await own.stage.saw("job.completed", following)
        assert (await own.stage.results(following))[0]["result"]["files"][0]["sha256"] == digest(b"made of 5")


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("image", b"just text", "not of type image/*"),
        ("image", BOMB, "more than 1000000 pixels"),
        ("mask", BOMB, "more than 1000000 pixels"),
        ("mask", bytes(10_001), "larger than 10000 bytes"),
    ],
)
async def test_a_file_that_can_never_be_taken_is_final(
    store: Store, tmp_path: Path, name: str, body: bytes, said: str
) -> None:
    """Field case 8: wrong MIME, decompression bomb, size: `input_rejected`, not retried, and the next job runs."""
    async with staff(store, tmp_path, input_limits=LIMITS) as own, Receiver([answer(200, body=body)]) as server:
        job_id = await own.give("files", **{name: server.url("/secret")})
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert (failed.error.code, failed.error.retryable, failed.attempts) == ("input_rejected", False, 1)
        assert "model.load_started" not in await own.stage.types(job_id)
        message = (await own.stage.results(job_id))[0]["error"]["message"]
        assert f"/input/{name}" in message
        assert said in message
        assert "secret" not in message

        following = await own.give("files")
        await own.stage.saw("job.completed", following)
        assert (await own.stage.state(following)).attempt == 1


async def test_an_inner_address_is_final(store: Store, tmp_path: Path) -> None:
    """Field case 8: a URL that passed at POST is judged again at the socket."""
    closed = InputLimits(10_000, 20_000, 1_000_000, timeout_s=5)
    async with staff(store, tmp_path, input_limits=closed) as own, Receiver([answer(200)]) as server:
        job_id = await own.give("files", image=server.url())
        failed = await own.stage.saw("job.failed", job_id)
        assert isinstance(failed, ev.JobFailed)
        assert failed.error.code == "input_rejected"
        assert server.connections == 0


async def test_a_server_that_is_away_is_tried_again(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, input_limits=LIMITS) as own, Receiver([answer(503)]) as server:
        job_id = await own.give("files", image=server.url())
        tried = await own.stage.saw("job.attempt_failed", job_id)
        assert isinstance(tried, ev.JobAttemptFailed)
        assert (tried.error.code, tried.error.retryable, tried.will_retry) == ("input_fetch_failed", True, True)


@pytest.mark.parametrize("fault", ["foreign", "expired", "gone", "changed"])
async def test_a_stored_file_is_looked_at_again_when_the_job_runs(store: Store, tmp_path: Path, fault: str) -> None:
    async with staff(store, tmp_path, input_limits=LIMITS) as own:
        changes: dict[str, object] = {"foreign": {"tenant_id": "t_b"}, "expired": {"expires_at_ms": 2}}.get(fault, {})
        kept = stored(own, tmp_path, b"x", **changes)
        folder = own.config.data_dir / "artifacts" / "other" / f"job_{PART}"
        if fault == "gone":
            (folder / f"{kept}.json").unlink()
        if fault == "changed":
            (folder / f"{kept}.png").write_bytes(b"y")
        job_id = await own.give("files", artifact_pools={kept: "other"}, inputArtifacts=[kept])
        tried = await own.stage.saw("job.attempt_failed", job_id)
        assert isinstance(tried, ev.JobAttemptFailed)
        code, retryable = ("input_fetch_failed", True) if fault == "changed" else ("input_rejected", False)
        assert (tried.error.code, tried.error.retryable) == (code, retryable)


async def test_a_store_of_files_that_hangs_is_not_the_jobs_fault(store: Store, tmp_path: Path) -> None:
    released = threading.Event()

    class Hanging(LocalObjects):
        def get(self, key: str, start: int = 0, end: int | None = None) -> Content | None:
            released.wait()
            return None

    limits = InputLimits(10_000, 20_000, 1_000_000, timeout_s=0.1)
    try:
        async with staff(store, tmp_path, shelf=Shelf(Hanging(tmp_path / "store")), input_limits=limits) as own:
            kept = f"art_{PART}_1_0"
            job_id = await own.give("files", artifact_pools={kept: "other"}, inputArtifacts=[kept])
            tried = await own.stage.saw("job.attempt_failed", job_id)
            assert isinstance(tried, ev.JobAttemptFailed)
            assert (tried.error.code, tried.error.retryable) == ("input_fetch_failed", True)
    finally:
        released.set()


async def test_a_cancel_ends_a_fetch(store: Store, tmp_path: Path) -> None:
    patient = InputLimits(10_000, 20_000, 1_000_000, timeout_s=50, allow_private="loopback")
    async with staff(store, tmp_path, input_limits=patient) as own, Receiver([silent]) as server:
        job_id = await own.give("files", image=server.url())
        await server.wait_for_requests(1)
        await own.stage.cancel(job_id)
        state = await own.stage.ended(job_id)
        assert state.status is JobStatus.CANCELLED
        assert "model.load_started" not in await own.stage.types(job_id)


async def test_a_worker_that_leaves_hands_a_fetch_back(store: Store, tmp_path: Path) -> None:
    patient = InputLimits(10_000, 20_000, 1_000_000, timeout_s=50, allow_private="loopback")
    held = asyncio.Event()
    async with Receiver([after(held, silent)]) as server:
        async with staff(store, tmp_path, input_limits=patient, drain_s=0.1) as own:
            job_id = await own.give("files", image=server.url())
            await server.wait_for_requests(1)
            own.stop.set()
            assert await own.ends()
            state = await own.stage.state(job_id)
        assert (state.status, state.attempt) == (JobStatus.QUEUED, 0)

"""Stored files: hashed, described, and never outside their place whatever author code did to the scratch directory."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from contracts.artifacts import Shelf, Upload
from contracts.artifacts.local import LocalObjects
from services.gpu_worker.artifacts import ArtifactRejected, Intake
from services.gpu_worker.process.frames import ArtifactFile, Preview
from services.gpu_worker.slots.outcome import Verdict
from tests.gpu_worker.rig import Recorder, model, rig

LIMIT_BYTES = 1 << 20


def upload(**changes: object) -> Upload:
    facts = {
        "id": "art_1", "pool": "default", "job_id": "job_1", "tenant_id": "t_a", "name": "image.png", "kind": "image",
        "variant": "original", "width": 512, "height": 512, "created_ms": 1, "expires_at_ms": 2,
    }  # fmt: skip
    return Upload(**{**facts, **changes})  # type: ignore[arg-type]


def intake(folder: Path) -> Intake:
    return Intake(Shelf(LocalObjects(folder / "store")), folder / "taken")


def scratch_with(folder: Path, content: bytes = b"pixels") -> Path:
    (folder / "scratch" / ".out").mkdir(parents=True)
    (folder / "scratch" / ".out" / "0001").write_bytes(content)
    return folder / "scratch"


def test_a_file_lies_beside_its_record(tmp_path: Path) -> None:
    stored = intake(tmp_path).put(scratch_with(tmp_path), "0001", upload(), LIMIT_BYTES)

    place = tmp_path / "store" / "default" / "job_1"
    assert (place / "art_1.png").read_bytes() == b"pixels"
    facts = json.loads((place / "art_1.json").read_text())
    assert facts["sha256"] == stored.sha256 == hashlib.sha256(b"pixels").hexdigest()
    assert (facts["mime"], facts["bytes"], facts["fileName"]) == ("image/png", 6, "image.png")
    assert (facts["storedAs"], facts["tenantId"], facts["path"]) == ("art_1.png", "t_a", "/v1/artifacts/art_1/content")
    assert sorted(path.name for path in place.iterdir()) == ["art_1.json", "art_1.png"]


@pytest.mark.parametrize("name", ["a.png/../../x", "a.\0", "a." + "x" * 40, "noending"])
def test_an_authors_name_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    intake(tmp_path).put(scratch_with(tmp_path), "0001", upload(name=name), LIMIT_BYTES)
    assert (tmp_path / "store" / "default" / "job_1" / "art_1").read_bytes() == b"pixels"


def test_a_file_over_the_limit_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ArtifactRejected):
        intake(tmp_path).put(scratch_with(tmp_path, bytes(100)), "0001", upload(), 99)


@pytest.mark.parametrize("trick", ["link", "folder link", "pipe", "folder", "missing"])
def test_tricks_with_the_scratch_directory_reach_nothing(tmp_path: Path, trick: str) -> None:
    scratch = scratch_with(tmp_path)
    out = scratch / ".out"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0001").write_text("key")
    (out / "0001").unlink()
    match trick:
        case "link":
            (out / "0001").symlink_to(secret / "0001")
        case "folder link":
            out.rmdir()
            out.symlink_to(secret)
        case "pipe":
            os.mkfifo(out / "0001")
        case "folder":
            (out / "0001").mkdir()
    with pytest.raises(ArtifactRejected):
        intake(tmp_path).put(scratch, "0001", upload(), LIMIT_BYTES)
    assert (secret / "0001").read_text() == "key"


@pytest.mark.parametrize("field", ["id", "pool", "job_id"])
@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "a\0b"])
def test_no_name_leaves_the_root(tmp_path: Path, field: str, name: str) -> None:
    with pytest.raises(ArtifactRejected):
        intake(tmp_path).put(scratch_with(tmp_path), "0001", upload(**{field: name}), 99)


async def test_a_file_is_taken_as_it_was_when_it_was_handed_over(tmp_path: Path) -> None:
    async with rig(tmp_path) as own:
        attempt = own.attempt(model("artifacts"))
        recorder = Recorder()
        await own.slot.run(attempt, recorder)
        notes, image, small = recorder.of(ArtifactFile)
        assert (attempt.scratch / ".out" / notes.file).read_text() == "first"
        assert (image.name, image.kind, image.variant, image.width) == ("image.png", "image", "original", 512)
        assert small.variant == "thumbnail"
        assert recorder.of(Preview)[0].step == 1


def test_a_put_that_the_store_could_not_take_is_repeated_with_what_was_taken(tmp_path: Path) -> None:
    scratch = scratch_with(tmp_path)
    store = tmp_path / "store"
    store.write_text("a file where the directory should be")
    with pytest.raises(OSError, match="cannot be written"):
        intake(tmp_path).put(scratch, "0001", upload(), LIMIT_BYTES)
    store.unlink()

    stored = intake(tmp_path).put(scratch, "0001", upload(), LIMIT_BYTES)

    assert stored.sha256 == hashlib.sha256(b"pixels").hexdigest()
    assert list((tmp_path / "taken").iterdir()) == []


async def test_odd_sides_of_a_picture_are_left_out_and_end_no_job(tmp_path: Path) -> None:
    """A number that no frame can hold was a broken protocol: the child was ended, and two such jobs were poison."""
    author = "def run(model, inputs, job):\n    job.artifact('a.png', b'x', width=10**30, height=-1)\n"
    (tmp_path / "odd.py").write_text(author + "    job.artifact('b.png', b'x', width=512.0, height=float('inf'))\n")
    async with rig(tmp_path) as own:
        recorder = Recorder()
        outcome = await own.slot.run(own.attempt(model("echo", entry=tmp_path / "odd.py")), recorder)
    assert outcome.verdict is Verdict.COMPLETED
    assert [(file.width, file.height) for file in recorder.of(ArtifactFile)] == [(None, None), (512, None)]

"""What a worker says it would run: every byte of a model's files counts, and what is started with them."""

import os
from dataclasses import replace
from pathlib import Path

import orjson

from contracts.model_spec import ModelRegistry
from services.gpu_worker.picture_distance import main as distance
from services.gpu_worker.pins import ModelPins
from tests.gpu_worker.rig import model


async def test_each_file_of_a_model_is_pinned_as_it_was_when_it_was_loaded_last(tmp_path: Path) -> None:
    folder = tmp_path / "echo"
    folder.mkdir()
    for name in ("echo.py", "inputs.json", "weights.bin"):
        (folder / name).write_bytes(name.encode())
    spec = model("echo", entry=folder / "echo.py", inputs=folder / "inputs.json")
    pins = ModelPins(ModelRegistry((spec,), {}, tmp_path))

    await pins.look()
    first = await pins.of(spec)
    (folder / "weights.bin").write_bytes(b"weights.Bin")  # of the same size
    os.utime(folder / "weights.bin", (1, 1))
    still = await pins.of(spec)
    changed = await pins.of(spec, was_loaded=True)

    assert first is not None
    assert changed is not None
    assert still == first
    assert (changed.model_hash != first.model_hash, changed.code_version) == (True, first.code_version)
    assert orjson.loads(pins.text) == {spec.reference: [changed.model_hash, changed.code_version]}
    assert "python/" in first.code_version
    assert "onnxruntime/" in first.code_version
    other = await ModelPins(ModelRegistry((), {}, tmp_path)).of(replace(spec, env={"SCALE": "2"}))
    assert other is not None
    assert other.model_hash != changed.model_hash
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to("nowhere")
    assert await pins.of(spec, was_loaded=True) is None  # what cannot be read is not pinned


def test_files_that_are_no_pictures_are_as_far_apart_as_their_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_bytes(b"12345678")
    for content, far in ((b"12345678", 0.0), (b"12345679", 1 / 8), (b"1234", 0.5), (b"", 1.0)):
        other.write_bytes(content)
        assert distance(str(one), str(other)) == far

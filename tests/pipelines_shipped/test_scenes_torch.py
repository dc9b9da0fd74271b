"""Torch draws what onnxruntime draws, from the same files, and copies nothing to the device before it may."""

import io
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from contracts.models import load
from tests.pipelines_shipped.conftest import PIPELINES, Cancelled, RecordedJob, device

PROMPTS = ["a red lighthouse by the sea at sunset", "a purple castle in the desert at night", "snow", ""]
ORIGINAL = "image/original/picture.png"


@pytest.fixture(scope="module")
def loaded_torch(scenes_torch: ModuleType) -> Any:
    return scenes_torch.load(device(), scenes_torch.prepare())


def pixels(job: RecordedJob) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(job.artifacts[ORIGINAL])).convert("RGB"), np.float32)


def asked(steps: int = 24) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "seed": seed, "steps": steps, "size": 64} for seed, prompt in enumerate(PROMPTS)]


def test_torch_and_onnxruntime_draw_the_same_pictures(
    scenes: ModuleType, loaded: Any, scenes_torch: ModuleType, loaded_torch: Any
) -> None:
    """The tolerance is that of batches: a mean difference of at most 1/255."""
    by_onnx, by_torch = ([RecordedJob() for _ in PROMPTS] for _ in range(2))

    results = scenes.run_batch(loaded, asked(), by_onnx)

    assert scenes_torch.run_batch(loaded_torch, asked(), by_torch) == results
    for ours, theirs in zip(by_torch, by_onnx, strict=True):
        assert np.abs(pixels(ours) - pixels(theirs)).mean() <= 1
        assert (ours.progressed, ours.milestones) == (theirs.progressed, theirs.milestones)
        assert [step for step, _ in ours.previews] == [step for step, _ in theirs.previews]


def test_torch_draws_in_one_pass_what_it_draws_singly(scenes_torch: ModuleType, loaded_torch: Any) -> None:
    together, alone = ([RecordedJob() for _ in PROMPTS] for _ in range(2))

    scenes_torch.run_batch(loaded_torch, asked(6), together)

    for one, job, ours in zip(asked(6), alone, together, strict=True):
        scenes_torch.run(loaded_torch, one, job)
        assert np.abs(pixels(job) - pixels(ours)).mean() <= 1


def test_a_cancel_ends_the_run_at_the_next_step(scenes_torch: ModuleType, loaded_torch: Any) -> None:
    job = RecordedJob(cancel_at=3)

    with pytest.raises(Cancelled):
        scenes_torch.run(loaded_torch, asked()[0], job)

    assert job.artifacts == {}


def test_what_is_prepared_is_in_host_memory_and_loading_makes_no_numbers(scenes_torch: ModuleType) -> None:
    """A swap of models waits for the copy only: on a CPU there is none, and the numbers stay where they were."""
    prepared = scenes_torch.prepare()
    weights = [weight.data_ptr() for network in prepared for weight in network.parameters()]

    scenes_torch.load(device("sim"), prepared)

    assert all(weight.device.type == "cpu" for network in prepared for weight in network.parameters())
    assert weights == [weight.data_ptr() for network in prepared for weight in network.parameters()]


def test_a_gpu_that_torch_cannot_use_is_an_error(scenes_torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_available", lambda: False)

    with pytest.raises(RuntimeError, match=r"torch .* sees no cuda device") as caught:
        scenes_torch.load(device("cuda"), scenes_torch.prepare())

    assert caught.value.code == "device_unavailable"  # type: ignore[attr-defined]


def test_without_torch_the_pipeline_says_what_to_install(scenes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch_runtime", raising=False)
    monkeypatch.delitem(sys.modules, "networks", raising=False)
    code = compile((PIPELINES / "scenes" / "pipeline_torch.py").read_text(), "pipeline_torch.py", "exec")

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'headrace\[torch\]'"):
        exec(code, {"__name__": "pipeline_torch"})


def test_the_model_is_served_by_the_file_of_extras() -> None:
    found = load(PIPELINES / "extra.toml").find("scenes-torch")

    assert found is not None
    assert found.max_batch == 8

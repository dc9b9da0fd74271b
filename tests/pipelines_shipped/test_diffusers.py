"""The diffusers pipeline with a Stable Diffusion of random weights: its pictures are noise, all else is real."""

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from contracts.model_spec import ModelSpec
from contracts.models import check_input, load
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.frames import ArtifactFile, Preview
from services.gpu_worker.slots.outcome import Stop, Verdict
from tests.gpu_worker.rig import Recorder, rig
from tests.pipelines_shipped.conftest import PIPELINES, Cancelled, RecordedJob, device, imported

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ORIGINAL = "image/original/picture.png"
ASKED = {"prompt": "a cat", "steps": 6, "seed": 3, "width": 64, "height": 64}


class Rejected(Exception):
    """Stands for `job.Reject`."""


class Job(RecordedJob):
    Reject = Rejected


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("torch", "diffusers", "transformers"):
        pytest.importorskip(name, reason=f"needs {name}: make test EXTRAS=torch,diffusers")
    from tests.pipelines_shipped.tiny_diffusion import write_tiny_stable_diffusion

    folder = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_stable_diffusion(folder)
    return folder


@pytest.fixture(scope="module")
def diffusion(weights: Path) -> Iterator[ModuleType]:
    sys.modules["torch"].set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_DIFFUSERS_MODEL", str(weights))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield from imported("diffusers")


@pytest.fixture(scope="module")
def loaded(diffusion: ModuleType) -> Any:
    return diffusion.load(device(), diffusion.prepare())


@pytest.fixture
def spec() -> ModelSpec:
    found = load(PIPELINES / "extra.toml").find("diffusers")
    assert found is not None
    return found


def drawn(diffusion: ModuleType, loaded: Any, **changes: Any) -> tuple[Job, dict[str, Any]]:
    job = Job()
    return job, diffusion.run(loaded, {**ASKED, **changes}, job)


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.float32)


def test_a_prompt_becomes_a_picture_with_its_steps_and_looks_at_them(diffusion: ModuleType, loaded: Any) -> None:
    job, result = drawn(diffusion, loaded, guidance=5, negativePrompt="dogs")

    assert job.progressed == [
        (0, 6, "encoding_prompt"),
        *((step, 6, "denoising") for step in range(1, 6)),
        (6, 6, "decoding"),
        (6, 6, "postprocessing"),
    ]
    assert [step for step, _ in job.previews] == [1, 2, 3, 4, 5]
    assert job.sizes == {ORIGINAL: (64, 64), "image/thumbnail/picture-thumbnail.png": (64, 64)}
    told = {name: result[name] for name in ("seed", "seeds", "width", "height", "guidance", "model", "withheld")}
    assert told == {
        "seed": 3, "seeds": [3], "width": 64, "height": 64, "guidance": 5, "model": "tiny", "withheld": 0
    }  # fmt: skip


def test_a_seed_repeats_and_each_of_several_pictures_has_its_own(diffusion: ModuleType, loaded: Any) -> None:
    both, result = drawn(diffusion, loaded, numOutputs=2)
    first, second = (drawn(diffusion, loaded, seed=seed)[0].artifacts[ORIGINAL] for seed in (3, 4))

    assert result["seeds"] == [3, 4]
    for number, alone in ((1, first), (2, second)):
        together = both.artifacts[f"image/original/picture-{number}.png"]
        assert np.abs(pixels(together) - pixels(alone)).mean() <= 1  # of 255
    assert drawn(diffusion, loaded)[0].artifacts[ORIGINAL] == first
    assert np.abs(pixels(first) - pixels(second)).mean() > 5


def test_a_cancel_ends_the_loop_by_the_pipelines_own_interrupt(diffusion: ModuleType, loaded: Any) -> None:
    """The steps that are left are not computed, and the next job runs with the same pipeline."""
    pipe, preview = loaded
    computed: list[int] = []

    class CancelledAtStepTwo(Job):
        def progress(self, done: int, total: int, phase: str) -> None:
            super().progress(done, total, phase)
            self.cancelled = done == 2

    watch = pipe.unet.register_forward_hook(lambda *_: computed.append(1))
    with pytest.raises(Cancelled):
        diffusion.run((pipe, preview), {**ASKED, "steps": 50}, CancelledAtStepTwo())
    watch.remove()

    assert pipe.interrupt
    assert len(computed) == 3  # the third one was being computed
    assert ORIGINAL in drawn(diffusion, loaded)[0].artifacts


def test_a_preview_has_the_colours_that_the_decoder_would_give(diffusion: ModuleType, loaded: Any) -> None:
    """Random weights are farther from a straight line than trained ones: the bound is no measure of a real model."""
    torch = sys.modules["torch"]
    pipe, preview = loaded
    coarse = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(7))
    latents = torch.nn.functional.interpolate(coarse, size=32, mode="bilinear")

    with torch.inference_mode():
        decoded = pipe.vae.decode(latents / pipe.vae.config.scaling_factor, return_dict=False)[0].clamp(-1, 1)
    (picture,) = preview(latents)

    small = torch.nn.functional.adaptive_avg_pool2d(decoded, 32)[0].permute(1, 2, 0).numpy()
    seen = np.asarray(picture, np.float32) / 127.5 - 1
    assert np.corrcoef(small.ravel(), seen.ravel())[0, 1] > 0.6


def test_what_the_model_has_no_parameter_for_is_refused(diffusion: ModuleType) -> None:
    class Plain:
        def __call__(self, prompt: str, num_inference_steps: int) -> None: ...

    with pytest.raises(Rejected, match="input/negativePrompt: Plain cannot do that"):
        diffusion.arguments(Plain(), {**diffusion.DEFAULTS, "prompt": "x", "negativePrompt": "y"}, Job())


def test_pictures_that_the_models_own_checker_flags_are_withheld(diffusion: ModuleType, loaded: Any) -> None:
    class Flagging:
        num_timesteps = 1

        def __call__(
            self, prompt: str, num_images_per_prompt: int, generator: list[Any], callback_on_step_end: object
        ) -> Any:
            images = [Image.new("RGB", (8, 8)) for _ in generator]
            flags = [number < flagged for number in range(len(images))]
            return type("Output", (), {"images": images, "nsfw_content_detected": flags})

    flagged = 1
    result = diffusion.run((Flagging(), None), {"prompt": "x", "numOutputs": 2}, Job())
    assert (result["seeds"], result["withheld"]) == ([1], 1)

    flagged = 2
    with pytest.raises(RuntimeError, match="withheld every picture") as caught:
        diffusion.run((Flagging(), None), {"prompt": "x", "numOutputs": 2}, Job())
    assert caught.value.code == "content_rejected"  # type: ignore[attr-defined]


def test_a_model_that_is_not_named_or_not_there_says_so(diffusion: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for on the network: the hub is offline unless an operator says otherwise."""
    monkeypatch.setenv("HEADRACE_DIFFUSERS_MODEL", "nobody/nothing")
    with pytest.raises(RuntimeError, match="'nobody/nothing' cannot be read"):
        diffusion.prepare()

    monkeypatch.setenv("HEADRACE_DIFFUSERS_MODEL", "")
    with pytest.raises(RuntimeError, match="HEADRACE_DIFFUSERS_MODEL is not set"):
        diffusion.prepare()


def test_odd_sizes_are_refused_before_a_device_is_asked(spec: ModelSpec) -> None:
    assert check_input(spec, "x", {"width": 512, "numOutputs": 4}) == ()
    faults = check_input(spec, "x", {"width": 100, "numOutputs": 5})
    assert {(fault.pointer, fault.code) for fault in faults} == {
        ("/input/width", "not_a_multiple"), ("/input/numOutputs", "too_large"),
    }  # fmt: skip


async def test_a_child_draws_and_is_cancelled_and_draws_again(weights: Path, tmp_path: Path, spec: ModelSpec) -> None:
    """In a real child: progress and previews come, a cancel is cooperative, and the model stays loaded."""
    spec = replace(spec, env={"HEADRACE_DIFFUSERS_MODEL": str(weights), "PYTHONWARNINGS": "ignore"})
    async with rig(tmp_path, Bounds(cancel_grace_s=60, load_s=500), device_mib=8192) as own:
        first = Recorder()
        outcome = await own.slot.run(own.attempt(spec, 4096, **ASKED), first)
        assert outcome.verdict is Verdict.COMPLETED, outcome.message
        assert [file.variant for file in first.of(ArtifactFile)] == ["thumbnail", "original"]
        assert first.of(Preview)
        pid = own.slot.child_pid

        attempt = own.attempt(spec, 4096, **{**ASKED, "steps": 200})
        recorder, running = own.begin(attempt)
        await recorder.saw(Preview)
        own.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        cancelled = await running
        assert (cancelled.verdict, cancelled.how) == (Verdict.CANCELLED, "cooperative")

        assert (await own.slot.run(own.attempt(spec, 4096, **ASKED), Recorder())).verdict is Verdict.COMPLETED
        assert own.slot.child_pid == pid

"""The demo pipeline draws what was asked, tells how far it is, repeats itself and stops when told."""

import io
import json
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from contracts.models import ModelSpec, check_input, draw_seed, load
from tests.pipelines_shipped.conftest import PIPELINES, Cancelled, RecordedJob, device

PROMPT = "a red lighthouse by the sea at sunset"
ORIGINAL, THUMBNAIL = "image/original/picture.png", "image/thumbnail/thumbnail.png"


@pytest.fixture
def spec() -> ModelSpec:
    found = load(PIPELINES / "pipelines.toml").find("scenes")
    assert found is not None
    return found


@pytest.fixture
def weights(scenes: ModuleType) -> ModuleType:
    return sys.modules["weights"]


def drawn(scenes: ModuleType, model: Any, prompt: str = PROMPT, **inputs: object) -> tuple[RecordedJob, dict[str, Any]]:
    job = RecordedJob()
    return job, scenes.run(model, {"prompt": prompt, "seed": 7, "steps": 8, **inputs}, job)


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((64, 64)), np.float32)


def test_a_prompt_becomes_a_picture_and_a_thumbnail_of_it(scenes: ModuleType, loaded: Any) -> None:
    job, result = drawn(scenes, loaded)

    picture, thumbnail = (Image.open(io.BytesIO(job.artifacts[name])) for name in (ORIGINAL, THUMBNAIL))
    assert (picture.format, picture.size) == ("PNG", (512, 512))
    assert (thumbnail.format, thumbnail.size) == ("PNG", (128, 128))
    assert job.sizes == {ORIGINAL: (512, 512), THUMBNAIL: (128, 128)}
    assert np.abs(pixels(job.artifacts[ORIGINAL]) - pixels(job.artifacts[THUMBNAIL])).mean() < 3
    assert result == {
        "seed": 7, "steps": 8, "guidance": 2.5, "size": 512,
        "words": ["sunset", "sea", "lighthouse", "red"], "unknownWords": [],
    }  # fmt: skip


def test_the_picture_follows_the_words(scenes: ModuleType, loaded: Any) -> None:
    def brightness(prompt: str, seed: int) -> float:
        return float(pixels(drawn(scenes, loaded, prompt, seed=seed)[0].artifacts[ORIGINAL]).mean())

    for seed in range(5):
        assert brightness("a red boat at night", seed) < brightness("a red boat by day", seed) - 30


def test_one_seed_repeats_byte_for_byte_and_two_seeds_differ(scenes: ModuleType, loaded: Any) -> None:
    first, _ = drawn(scenes, loaded)
    again, _ = drawn(scenes, scenes.load(device("sim"), scenes.prepare()))
    other, _ = drawn(scenes, loaded, seed=8)

    assert again.artifacts == first.artifacts
    assert again.previews == first.previews
    assert other.artifacts[ORIGINAL] != first.artifacts[ORIGINAL]


def test_every_step_is_reported_and_the_phases_come_in_order(scenes: ModuleType, loaded: Any) -> None:
    job, _ = drawn(scenes, loaded, steps=5)

    assert job.progressed == [
        (0, 5, "encoding_prompt"),
        *((step, 5, "denoising") for step in range(1, 6)),
        (5, 5, "decoding"),
        (5, 5, "postprocessing"),
    ]
    assert job.milestones == ["latents.decoded"]


def test_previews_are_few_and_small_and_come_closer_to_the_picture(scenes: ModuleType, loaded: Any) -> None:
    job, _ = drawn(scenes, loaded, steps=200)

    final = pixels(job.artifacts[ORIGINAL])
    distances = [np.abs(pixels(data) - final).mean() for _, data in job.previews]
    assert [step for step, _ in job.previews] == [25, 50, 75, 100, 125, 150, 175]
    assert all(len(data) < 20_000 for _, data in job.previews)
    assert all(later < earlier + 1 for earlier, later in pairwise(distances))
    assert distances[-1] < distances[0] / 2


def test_one_step_is_enough_for_a_picture(scenes: ModuleType, loaded: Any) -> None:
    job, _ = drawn(scenes, loaded, steps=1)

    assert job.previews == []
    assert ORIGINAL in job.artifacts


def test_a_cancel_at_any_report_ends_the_run_without_an_artifact(scenes: ModuleType, loaded: Any) -> None:
    for cancel_at in range(8):
        job = RecordedJob(cancel_at=cancel_at)

        with pytest.raises(Cancelled):
            scenes.run(loaded, {"prompt": PROMPT, "seed": 1, "steps": 5}, job)

        assert job.artifacts == {}
        assert len(job.progressed) == cancel_at


def test_pictures_drawn_in_one_pass_are_those_drawn_singly(scenes: ModuleType, loaded: Any) -> None:
    """Whom a job is drawn beside is nothing its caller can see."""
    prompts = [PROMPT, "a castle by day", "dragons in the snow", "", "a blue boat", "sea", "hills at dawn", "night"]
    asked = [
        {"prompt": prompt, "seed": number, "steps": 6, "size": 64, "guidance": 1 + number}
        for number, prompt in enumerate(prompts)
    ]
    together, alone = ([RecordedJob() for _ in asked] for _ in range(2))

    results = scenes.run_batch(loaded, asked, together)

    assert results == [scenes.run(loaded, one, job) for one, job in zip(asked, alone, strict=True)]
    for ours, single in zip(together, alone, strict=True):
        difference = np.abs(pixels(ours.artifacts[ORIGINAL]) - pixels(single.artifacts[ORIGINAL]))
        assert difference.mean() <= 1  # of 255
        assert ours.artifacts.keys() == single.artifacts.keys()
        assert (ours.progressed, ours.milestones) == (single.progressed, single.milestones)
        assert [step for step, _ in ours.previews] == [step for step, _ in single.previews]
    assert len({job.artifacts[ORIGINAL] for job in together}) == len(asked)


def test_words_without_a_meaning_are_reported_and_the_rest_is_drawn(scenes: ModuleType, loaded: Any) -> None:
    _, result = drawn(scenes, loaded, "Dragons over a blue castle, dragons and ÉLAN 42")

    assert result["unknownWords"] == ["dragons", "élan"]
    assert result["words"] == ["castle", "blue"]


def test_the_picture_tells_how_it_was_made(scenes: ModuleType, loaded: Any, weights: ModuleType) -> None:
    job, result = drawn(scenes, loaded, guidance=3)

    told = json.loads(Image.open(io.BytesIO(job.artifacts[ORIGINAL])).text["provenance"])
    assert told.pop("weights") == weights.WEIGHTS_SHA256
    assert told == {key: value for key, value in result.items() if key != "unknownWords"}


def test_numbers_may_come_as_json_writes_them(scenes: ModuleType, loaded: Any, spec: ModelSpec) -> None:
    """`24.0` is an integer to JSON Schema, so it must be one to the pipeline."""
    fields = {"seed": 7.0, "steps": 8.0, "size": 64.0, "guidance": 2}
    assert check_input(spec, PROMPT, fields) == ()

    job, result = drawn(scenes, loaded, **fields)

    assert result["size"] == 64
    assert Image.open(io.BytesIO(job.artifacts[ORIGINAL])).size == (64, 64)


def test_a_gpu_that_onnxruntime_does_not_know_is_an_error(scenes: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="install onnxruntime-gpu") as caught:
        scenes.load(device("cuda"), scenes.prepare())

    assert caught.value.code == "device_unavailable"  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_silent_fall_back_to_the_cpu_is_an_error(scenes: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU build names CUDA whatever the machine has, and then runs on the CPU without an exception."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])

    with pytest.raises(RuntimeError, match="could not use CUDAExecutionProvider"):
        scenes.load(device("cuda", 1 << 30), scenes.prepare())


def test_damaged_weights_are_refused_before_a_picture_is_drawn(weights: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "denoiser.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")

    with pytest.raises(RuntimeError, match=r"denoiser\.onnx has sha256"):
        weights.checked_weights(tmp_path / "denoiser.onnx", weights.WEIGHTS_SHA256["denoiser.onnx"])


@pytest.mark.parametrize(("said", "threads"), [("3", 3), ("0", 1), ("", 1), ("many", 1), ("-2", 1)])
def test_the_threads_are_those_the_worker_allows(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, said: str, threads: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    options = sys.modules["onnx_runtime"].session_options()

    assert options.intra_op_num_threads == threads
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize(
    ("prompt", "fields", "fault"),
    [
        ("", {}, ("/prompt", "blank")),
        (" \t", {}, ("/prompt", "blank")),
        ("x" * 1001, {}, ("/prompt", "too_long")),
        (None, {}, ("/prompt", "missing")),
        (PROMPT, {"steps": 201}, ("/input/steps", "too_large")),
        (PROMPT, {"steps": 0}, ("/input/steps", "too_small")),
        (PROMPT, {"seed": -1}, ("/input/seed", "too_small")),
        (PROMPT, {"size": 100}, ("/input/size", "not_a_multiple")),
        (PROMPT, {"size": 100_000 * 64}, ("/input/size", "too_large")),
        (PROMPT, {"guidance": "strong"}, ("/input/guidance", "wrong_type")),
        (PROMPT, {"style": "oil"}, ("/input/style", "unknown_field")),
    ],
)
def test_what_it_cannot_draw_is_refused_by_its_schema(
    spec: ModelSpec, prompt: str | None, fields: dict[str, object], fault: tuple[str, str]
) -> None:
    """Field case 7: refused at POST with the path of the field, long before a GPU is asked."""
    assert [(found.pointer, found.code) for found in check_input(spec, prompt, fields)] == [fault]


def test_a_missing_seed_is_drawn_and_fits(spec: ModelSpec) -> None:
    fields = draw_seed(spec, {}, 2**53 - 1)

    assert check_input(spec, PROMPT, fields) == ()


def test_the_defaults_of_the_schema_are_the_defaults_of_the_pipeline(scenes: ModuleType) -> None:
    assert sys.modules["drawing"].DEFAULTS == {"steps": 24, "guidance": 2.5, "size": 512}

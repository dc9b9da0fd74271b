"""The demo model can be trained and exported again: a few steps of the whole way, and what ships came out of it."""

import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.pipelines_shipped.conftest import RecordedJob, device


@pytest.fixture(scope="module")
def training(scenes: ModuleType, scenes_torch: ModuleType) -> Any:
    from importlib import import_module

    return {name: import_module(f"training.{name}") for name in ("pictures", "train", "export")}


def test_a_picture_is_what_its_words_and_its_seed_say(training: Any) -> None:
    render, words = training["pictures"].render, {"object": "lighthouse", "time": "night"}

    picture, said = render(words, random.Random(3))
    again, _ = render(words, random.Random(3))
    by_day, _ = render({**words, "time": "day"}, random.Random(3))

    assert words.items() <= said.items()
    assert said.keys() == sys.modules["vocabulary"].GROUPS.keys()
    assert (picture.size, picture.tobytes()) == ((64, 64), again.tobytes())
    assert np.asarray(by_day).mean() > np.asarray(picture).mean() + 30


def test_every_scene_can_be_drawn(training: Any) -> None:
    groups, generator = sys.modules["vocabulary"].GROUPS, random.Random(1)
    for group, words in groups.items():
        for word in words:
            assert training["pictures"].render({group: word}, generator)[1][group] == word


def test_a_few_steps_train_export_and_draw(training: Any, scenes: ModuleType, tmp_path: Path) -> None:
    pictures, words = training["train"].data(16, seed=0)
    begun = training["train"].train(pictures, words, autoencoder_steps=2, flow_steps=2)
    went_on = training["train"].train(pictures, words, 0, 1, begun)

    files = training["export"].exported_files(went_on)
    job = RecordedJob()
    scenes.run(scenes.load(device(), files), {"prompt": "a red boat", "steps": 2}, job)

    assert "image/original/picture.png" in job.artifacts
    assert (went_on["encoder"]["entry.weight"] == begun["encoder"]["entry.weight"]).all()
    assert (went_on["denoiser"]["exit.weight"] != begun["denoiser"]["exit.weight"]).any()


def test_the_weights_that_ship_are_what_the_export_writes(training: Any, scenes: ModuleType) -> None:
    """Read as torch reads them and exported again they hold the same numbers under the same names."""
    shipped = scenes.prepare()
    denoiser, decoder = sys.modules["torch_runtime"].networks_of(shipped)

    files = training["export"].exported_files({"denoiser": denoiser.state_dict(), "decoder": decoder.state_dict()})

    arrays = sys.modules["weights"].arrays
    for name, content in files.items():
        theirs, ours = arrays(shipped[name]), arrays(content)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)

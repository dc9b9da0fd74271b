"""Run a shipped pipeline as a child does: its folder on the path, the child's own `device`, a `job` that records."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from services.gpu_worker.child.device import Device

PIPELINES = Path(__file__).parents[2] / "pipelines"


class Cancelled(BaseException):
    """What the child raises inside author code; `except Exception` cannot swallow it."""


@dataclass
class RecordedJob:
    """Writes down every call of author code; cancels at progress call number `cancel_at`."""

    cancel_at: int | None = None
    cancelled: bool = False  # as the child sets it while author code runs; noticed at the next call
    progressed: list[tuple[int, int, str]] = field(default_factory=list)
    milestones: list[str] = field(default_factory=list)
    previews: list[tuple[int, bytes]] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def progress(self, done: int, total: int, phase: str) -> None:
        if self.cancelled or len(self.progressed) == self.cancel_at:
            raise Cancelled
        self.progressed.append((done, total, phase))

    def milestone(self, name: str) -> None:
        self.milestones.append(name)

    def preview(self, data: bytes, step: int) -> None:
        self.previews.append((step, data))

    def artifact(self, name: str, data: bytes, kind: str, variant: str, width: int, height: int) -> None:
        self.artifacts[f"{kind}/{variant}/{name}"] = data
        self.sizes[f"{kind}/{variant}/{name}"] = (width, height)


def device(kind: str = "cpu", size_bytes: int = 0) -> Device:
    """Return what the child gives to load()."""
    return Device(kind, 0, size_bytes)


def imported(folder: str, file: str = "pipeline.py") -> Iterator[ModuleType]:
    """Import a pipeline and forget it and its siblings afterwards: `model` is a name others use, too."""
    path = PIPELINES / folder / file
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"shipped_{folder}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(path.parent))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(path.parent)):
                del sys.modules[name]


@pytest.fixture(scope="package")
def scenes() -> Iterator[ModuleType]:
    yield from imported("scenes")


@pytest.fixture(scope="package")
def scenes_torch() -> Iterator[ModuleType]:
    torch = pytest.importorskip("torch", reason="needs torch: make test EXTRAS=torch")
    torch.set_num_threads(1)  # as a worker has it: two that wait for each other on busy cores take ten times longer
    yield from imported("scenes", "pipeline_torch.py")


@pytest.fixture(scope="package")
def echo() -> Iterator[ModuleType]:
    yield from imported("echo")


@pytest.fixture(scope="package")
def loaded(scenes: ModuleType) -> Any:
    return scenes.load(device(), scenes.prepare())

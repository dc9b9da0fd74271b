"""What author code gets as `device`: the slice of a GPU in force before the first allocation, sessions that run there.

torch's CUDA calls and onnxruntime's CUDA provider are stand-ins; sessions on the CPU are real. tests/gpu has the card.
"""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.gpu_worker.child import device as child
from services.gpu_worker.devices import Device
from services.gpu_worker.slots.outcome import Verdict
from tests.gpu_worker import rig as rigs

GIB, MIB = 1 << 30, 1 << 20
TORCH = Path(__file__).parent / "fake_torch" / "torch.py"
GPU = Device("GPU-test", "cuda", 0, 8 * GIB, -1, 0, environment={"CUDA_VISIBLE_DEVICES": "GPU-test"})
NETWORK = Path(__file__).parents[2] / "pipelines" / "scenes" / "weights" / "decoder.onnx"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Torch, importable but not imported."""
    before = sys.modules.pop("torch", None)
    monkeypatch.syspath_prepend(str(TORCH.parent))
    yield lambda: __import__("torch")
    sys.modules.pop("torch", None)
    if before is not None:
        sys.modules["torch"] = before


def test_torch_has_its_limit_as_soon_as_it_is_imported(torch: Any) -> None:
    device = child.Device("cuda", 0, 2 * GIB, 512 * MIB)
    device.grant()
    assert device.torch_device == "cuda:0"
    module = torch()
    assert module.CALLS == [("fraction", 1536 * MIB)]
    with pytest.raises(module.OutOfMemoryError):
        module.cuda.take(1537 * MIB)


def test_torch_that_is_there_already_has_it_before_load(torch: Any) -> None:
    module = torch()
    device = child.Device("cuda", 0, GIB, 256 * MIB)
    device.grant()
    device.resize(3 * GIB, 300 * MIB)
    module.cuda.take(2 * GIB)
    module.cuda.free(2 * GIB)
    device.resize(GIB, 300 * MIB)  # an idle resident gives back before its limit falls
    told = [call for call in module.CALLS if call[0] != "take"]
    assert told == [("fraction", 768 * MIB), ("fraction", 2772 * MIB), ("empty_cache",), ("fraction", 724 * MIB)]
    assert module.cuda.memory_reserved() == 0


def test_what_is_cached_and_not_used_goes_back_between_passes_if_it_is_much(torch: Any) -> None:
    """Field case 72: reserved minus allocated is told; beyond a threshold the cache is emptied."""
    module = torch()
    device = child.Device("cuda", 0, 4 * GIB)
    device.grant()
    device.begin_pass()
    module.cuda.take(GIB)
    module.cuda.free(GIB)
    assert device.end_pass() == {"reserved": GIB, "allocated": 0, "peak": GIB}
    module.cuda.take(3 * GIB)
    module.cuda.free(3 * GIB)
    assert device.end_pass() == {"reserved": 0, "allocated": 0, "peak": 3 * GIB}


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_other_devices_leave_torch_alone(kind: str, torch: Any) -> None:
    device = child.Device(kind, 0, GIB)
    device.grant()
    module = torch()
    device.resize(2 * GIB, 0)
    device.begin_pass()
    assert (device.torch_device, device.end_pass(), module.CALLS) == ("cpu", None, [])


def test_a_torch_that_does_not_see_the_gpu_is_device_unavailable(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    module = torch()
    device = child.Device("cuda", 0, GIB)
    device.grant()
    with pytest.raises(RuntimeError, match="sees no cuda device") as caught:
        _ = device.torch_device
    assert caught.value.code == "device_unavailable"  # type: ignore[attr-defined]
    assert module.CALLS == []


def test_a_session_on_the_cpu_is_onnxruntimes_own() -> None:
    import numpy

    session = child.Device("sim", 0, GIB).onnx_session(str(NETWORK))
    assert session.get_providers() == ["CPUExecutionProvider"]
    (pixels,) = session.run(None, {session.get_inputs()[0].name: numpy.zeros((1, 24, 8, 8), numpy.float32)})
    assert pixels.shape == (1, 3, 64, 64)
    assert child.Device("cpu", 0, GIB).onnx_run_options() is None


def test_an_onnxruntime_without_cuda_is_device_unavailable() -> None:
    with pytest.raises(RuntimeError, match="install onnxruntime-gpu") as caught:
        child.Device("cuda", 0, GIB).onnx_session(str(NETWORK))
    assert caught.value.code == "device_unavailable"  # type: ignore[attr-defined]


class CudaSession:
    """A session of onnxruntime-gpu; `falls_back` makes it run on the CPU without a word, as the real one does."""

    made: list["CudaSession"] = []
    falls_back = False

    def __init__(self, model: Any, options: Any, providers: list[Any]) -> None:
        self.providers = providers
        CudaSession.made.append(self)

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"] if self.falls_back else ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, Any]:
        return dict(self.providers)

    def run(self, names: Any, feed: Any, run_options: Any) -> int:
        return CudaSession.made.index(self)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    import onnxruntime

    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    monkeypatch.setattr(onnxruntime, "InferenceSession", CudaSession)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(CudaSession, "made", [])
    return CudaSession


def test_a_session_on_a_gpu_has_its_limit_as_provider_options(cuda: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Field case 66: options at the wrong place have no effect; what is in use stands in the log."""
    device = child.Device("cuda", 0, 4 * GIB, GIB)
    device.onnx_session("model.onnx", share=0.5)
    assert cuda.made[0].providers == [
        (
            "CUDAExecutionProvider",
            {
                "device_id": "0",
                "gpu_mem_limit": str(3 * GIB // 2),
                "arena_extend_strategy": "kSameAsRequested",
                "cudnn_conv_algo_search": "HEURISTIC",
            },
        )
    ]
    assert f"'gpu_mem_limit': '{3 * GIB // 2}'" in capsys.readouterr().out
    entries = device.onnx_run_options()
    assert entries.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "gpu:0"


def test_a_session_grows_with_its_slice_and_never_shrinks(cuda: Any) -> None:
    device = child.Device("cuda", 0, GIB)
    session = device.onnx_session("model.onnx")
    assert session.run(None, {}) == 0
    device.resize(GIB // 2, 0)
    assert session.run(None, {}) == 0
    device.resize(2 * GIB, 0)
    assert (session.run(None, {}), session.run(None, {}), len(cuda.made)) == (1, 1, 2)


def test_a_silent_fallback_to_the_cpu_is_device_unavailable(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "falls_back", True)
    with pytest.raises(RuntimeError, match="could not use CUDAExecutionProvider") as caught:
        child.Device("cuda", 0, GIB).onnx_session("model.onnx")
    assert caught.value.code == "device_unavailable"  # type: ignore[attr-defined]


AUTHOR = """
import os
def load(device, prepared):
    import torch
    torch.cuda.take(64 << 20)
    return device
def run(device, inputs, job):
    import torch
    torch.cuda.take(inputs["mib"] << 20)
    torch.cuda.free(inputs["mib"] << 20)
    env = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "HF_HUB_OFFLINE")}
    limits = [size >> 20 for what, *more in torch.CALLS if what == "fraction" for size in more]
    return {"limits": limits, "bytes": device.bytes, "env": env, "first": torch.CALLS[0][0]}
"""


async def test_a_slice_reaches_the_child_before_each_pass(tmp_path: Path) -> None:
    """What the ledger gives is what the allocator in the process may take: less what a context takes."""
    entry = tmp_path / "author.py"
    entry.write_text(AUTHOR)
    shutil.copy(TORCH, tmp_path)
    spec = replace(rigs.model("echo"), entry=entry, env={"CUDA_VISIBLE_DEVICES": "all", "HF_HUB_OFFLINE": "0"})
    async with rigs.rig(tmp_path, device=GPU) as rig:
        outcomes = [
            await rig.slot.run(rig.attempt(spec, budget_mib=budget, mib=mib), rigs.Recorder())
            for budget, mib in ((2048, 100), (4096, 100), (2048, 1600))
        ]
    first, second, third = outcomes
    assert first.verdict is second.verdict is Verdict.COMPLETED
    assert first.result is not None
    assert second.result is not None
    assert first.result["first"] == "fraction"
    assert first.result["limits"] == [1536]
    assert second.result["limits"] == [1536, 3584]
    assert second.result["bytes"] == 4 * GIB
    assert first.result["env"] == {
        "CUDA_VISIBLE_DEVICES": "GPU-test",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "HF_HUB_OFFLINE": "0",
    }
    assert third.code == "out_of_memory"
    assert first.peak_bytes == (164 + 512) * MIB  # as the allocator in the child tells, and a context

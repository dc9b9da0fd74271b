"""Which GPUs a host has, what their memory holds, and how that is known where there are none."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pynvml
import pytest

from services.gpu_worker.gpus import nvml, rocm
from services.gpu_worker.gpus.facts import Gpu, Memory, foreign_bytes
from services.gpu_worker.gpus.finding import Gpus
from tests.gpu_worker.fake_nvml import pynvml as fake

GIB = 1 << 30
L4 = {"uuid": "GPU-8f6a", "total": 24 * GIB, "reserved": GIB // 2, "utilization": 37, "temperature": 61}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host whose GPUs are those of the file returned."""
    path = tmp_path / "gpus.json"
    monkeypatch.setenv("FAKE_NVML", str(path))
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return path


def test_a_host_without_a_driver_is_known_in_milliseconds_and_without_torch() -> None:
    if any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd")):
        pytest.skip("this host has a GPU driver")
    begun = time.perf_counter()
    found = Gpus({}).found
    took_s = time.perf_counter() - begun
    assert found.gpus == ()
    assert [text.partition(":")[0] for text in found.why_not] == ["cuda", "rocm"]
    assert "NVML Shared Library Not Found" in found.why_not[0]
    assert took_s < 0.5  # 7 ms; a loaded machine may take longer


def test_a_host_without_the_binding_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pynvml'] = None\n"
        "from services.gpu_worker.gpus.finding import Gpus\n"
        "print(Gpus({}).found.why_not[0], 'torch' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root).stdout
    assert said == "cuda: nvidia-ml-py is not installed (pip install 'headrace[gpu]') False\n"


def test_the_library_that_stands_in_has_no_function_the_real_one_lacks() -> None:
    ours = [name for name in vars(fake) if name.startswith(("nvml", "NVML"))]
    assert len(ours) > 15
    assert [name for name in ours if not hasattr(pynvml, name)] == []
    assert fake.nvmlMemory_v2 == pynvml.nvmlMemory_v2
    assert fake.NVML_DEVICE_MIG_ENABLE == pynvml.NVML_DEVICE_MIG_ENABLE


def test_a_gpu_offers_what_the_driver_does_not_keep(host: Path) -> None:
    host.write_text(json.dumps([L4]))
    found = Gpus({})
    assert found.found.gpus == (Gpu("cuda", 0, "GPU-8f6a", "NVIDIA L4", "570.86.15", 24 * GIB - GIB // 2),)
    assert found.memory("GPU-8f6a") == Memory(24 * GIB - GIB // 2, 24 * GIB - GIB // 2, 0)
    activity = found.activity("GPU-8f6a")
    assert (activity.utilization_percent, activity.temperature_c) == (37, 61)


def test_the_slices_of_a_gpu_are_devices_of_their_own(host: Path) -> None:
    whole = L4 | {"slices": [{"uuid": f"MIG-{n}", "total": 5 * GIB, "holders": {"7": n * GIB}} for n in range(2)]}
    host.write_text(json.dumps([whole, L4 | {"uuid": "GPU-2"}]))
    found = Gpus({})
    assert [(gpu.index, gpu.uuid) for gpu in found.found.gpus] == [(0, "MIG-0"), (1, "MIG-1"), (2, "GPU-2")]
    assert found.holders("MIG-1") == {7: GIB}
    activity = found.activity("MIG-1")
    assert (activity.utilization_percent, activity.temperature_c) == (None, 61)


def test_a_gpu_that_is_lost_tells_nothing_and_hides_no_other(host: Path) -> None:
    host.write_text(json.dumps([L4 | {"total": None}, L4 | {"uuid": "GPU-2"}]))
    found = Gpus({})
    assert [gpu.uuid for gpu in found.found.gpus] == ["GPU-2"]
    host.write_text(json.dumps([L4 | {"uuid": "GPU-2", "total": None, "temperature": None, "utilization": None}]))
    assert found.memory("GPU-2") is None
    assert found.activity("GPU-2").temperature_c is None


def test_gpus_that_are_hidden_from_the_supervisor_are_not_offered(host: Path) -> None:
    host.write_text(json.dumps([L4, L4 | {"uuid": "GPU-2"}]))
    assert [gpu.uuid for gpu in Gpus({"CUDA_VISIBLE_DEVICES": "1"}).found.gpus] == ["GPU-2"]
    assert [gpu.uuid for gpu in Gpus({"CUDA_VISIBLE_DEVICES": "GPU-8f"}).found.gpus] == ["GPU-8f6a"]
    assert Gpus({"CUDA_VISIBLE_DEVICES": ""}).found.why_not[0] == "cuda: CUDA_VISIBLE_DEVICES= hides all 2"


@pytest.mark.parametrize(
    ("holders", "ours", "booked", "foreign"),
    [
        ({}, {5}, 0, 0),
        ({7: 10}, {5}, 0, 10),  # nobody of ours: all that is used
        ({5: 6, 7: 10}, {5}, 8, 10),  # ours are named: what they do not hold
        ({5: 6, 6: 2, 7: 10}, {5, 6}, 8, 10),  # and so are their helpers
        ({5: 9}, {5}, 4, 0),  # ours beyond its books is not somebody else's
        ({905: 6, 907: 10}, {5}, 8, 8),  # a container: nobody is named, what is beyond our books
        ({905: 6}, {5}, 8, 0),  # nothing of ours is ever counted as foreign
        ({5: None, 7: None}, {5}, 8, 0),  # no bytes are told
    ],
)
def test_what_others_hold_is_measured_and_never_our_own(
    holders: dict[int, int | None], ours: set[int], booked: int, foreign: int
) -> None:
    """Field case 70: the rest of the card is counted; vllm 14419, 17872, 18858 and 19312 counted their own."""
    used = sum(size or 0 for size in holders.values())
    assert foreign_bytes(Memory(24, 24 - used, used), holders, frozenset(ours), booked) == foreign


def test_amd_gpus_are_looked_for_only_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The way there is run with a torch that stands in; it never ran on a card."""
    driver = tmp_path / "kfd"
    monkeypatch.setattr(rocm, "DRIVER", driver)
    with pytest.raises(rocm.RocmAbsent, match="is not there"):
        rocm.Rocm().gpus()
    driver.touch()
    with pytest.raises(rocm.RocmAbsent, match=r"no torch here|sees no AMD GPU"):
        rocm.Rocm().gpus()
    answer = b'[["9f1c", "AMD Instinct MI210", "6.2", 68719476736, "0000:03:00.0"]]'
    monkeypatch.setattr(rocm.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, answer))
    memory = tmp_path / "0000:03:00.0"
    memory.mkdir()
    (memory / "mem_info_vram_total").write_text("64\n")
    (memory / "mem_info_vram_used").write_text("10\n")
    monkeypatch.setattr(rocm, "PCI", tmp_path)
    found = rocm.Rocm()
    assert found.gpus() == (Gpu("rocm", 0, "ROCM-9f1c", "AMD Instinct MI210", "6.2", 64 * GIB),)
    assert found.memory("ROCM-9f1c") == Memory(64, 54, 10)
    assert found.memory("ROCM-2") is None


def test_nvml_is_asked_for_its_second_version_and_does_without(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    host.write_text(json.dumps([L4]))
    monkeypatch.delattr(fake, "nvmlMemory_v2")
    assert nvml.Nvml(fake).memory("GPU-8f6a") == Memory(24 * GIB, 24 * GIB - GIB // 2, GIB // 2)

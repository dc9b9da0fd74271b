"""Devices: what the operator writes, and names that no two supervisors share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.gpu_worker.devices import (
    DeviceError,
    DevicesBusy,
    DeviceSpec,
    claim_devices,
    parse_devices,
    release_devices,
)  # fmt: skip
from services.gpu_worker.gpus.facts import Found, Gpu

GIB = 1 << 30
GPUS = tuple(Gpu("cuda", n, f"GPU-{n}a", "NVIDIA L4", "570", 23 * GIB) for n in range(2))
AMD = Gpu("rocm", 0, "ROCM-9", "AMD Instinct MI210", "6.2", 64 * GIB)
FOUND = Found((*GPUS, AMD))


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("cpu", [("cpu", 8 * GIB)]),
        ("cpu*2", [("cpu", 4 * GIB)] * 2),
        ("sim:24GiB*4", [("sim", 24 * GIB)] * 4),
        ("sim:1.5GiB", [("sim", 3 * GIB // 2)]),
        ("sim:512MiB*1, cpu", [("sim", GIB // 2), ("cpu", 8 * GIB)]),
        ("sim:67108864", [("sim", 64 << 20)]),
    ],
)
def test_a_specification_names_each_device(text: str, devices: list[tuple[str, int]]) -> None:
    assert parse_devices(text, 8 * GIB) == tuple(DeviceSpec(kind, size) for kind, size in devices)


@pytest.mark.parametrize(
    "text",
    [
        "gpu",
        "gpu:0",
        "gpu*2",
        "cuda:0",
        "rocm",
        "cpu*0",
        "cpu*-1",
        "cpu:4GiB",
        "sim",
        "sim:",
        "sim:24GB",
        "sim:1MiB",
        "cpu,,cpu",
        "cpu*9999",
        "CPU",
    ],
)
def test_a_wrong_specification_says_what_to_write(text: str) -> None:
    with pytest.raises(DeviceError, match=r"write|takes|must be"):
        parse_devices(text, 8 * GIB)


def test_two_supervisors_never_use_one_name_and_a_name_is_free_when_its_lock_is(tmp_path: Path) -> None:
    """Field case 69: two supervisors on one host divide it instead of sharing a device."""
    specs = parse_devices("cpu*2,sim:1GiB", 8 * GIB)
    first = claim_devices(specs, "box", tmp_path)
    second = claim_devices(specs, "box", tmp_path)
    assert [device.name for device in first] == ["cpu-box-0-0", "cpu-box-0-1", "sim-box-0-0"]
    assert [device.name for device in second] == ["cpu-box-1-0", "cpu-box-1-1", "sim-box-1-0"]

    for fd in {device.lock_fd for device in first}:
        os.close(fd)
    third = claim_devices(specs, "box", tmp_path)
    assert [device.name for device in third] == [device.name for device in first]
    assert third[0].lock_inode == (tmp_path / "cpu-box-0.lock").stat().st_ino


def test_the_name_of_a_dead_supervisor_is_worth_a_wait_for_its_dying_children(tmp_path: Path) -> None:
    """A successor that came too early would get another name, and the lease of the dead one would have to run out."""
    source = (
        "import subprocess, sys\nfrom pathlib import Path\n"
        "from services.gpu_worker.devices import claim_devices, parse_devices\n"
        "device, = claim_devices(parse_devices('cpu', 1 << 30), 'box', Path(sys.argv[1]))\n"
        "subprocess.Popen(['sleep', '0.5'], pass_fds=[device.lock_fd])\n"
    )
    subprocess.run([sys.executable, "-c", source, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
    (device,) = claim_devices(parse_devices("cpu", GIB), "box", tmp_path)
    assert device.name == "cpu-box-0-0"


def test_a_child_that_holds_the_lock_keeps_the_name_taken(tmp_path: Path) -> None:
    device, *_ = claim_devices(parse_devices("cpu", GIB), "box", tmp_path)
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(device.lock_fd,)) as child:
        os.close(device.lock_fd)
        (other,) = claim_devices(parse_devices("cpu", GIB), "box", tmp_path)
        assert other.name == "cpu-box-1-0"
        child.communicate(b"\n")
    (again,) = claim_devices(parse_devices("cpu", GIB), "box", tmp_path)
    assert again.name == "cpu-box-0-0"


@pytest.mark.parametrize(
    ("text", "uuids"),
    [
        ("", ["GPU-0a", "GPU-1a", "ROCM-9"]),
        ("gpu", ["GPU-0a", "GPU-1a", "ROCM-9"]),
        ("cuda", ["GPU-0a", "GPU-1a"]),
        ("cuda:1", ["GPU-1a"]),
        ("cuda:gpu-1", ["GPU-1a"]),
        ("rocm:0,cuda:GPU-0a", ["ROCM-9", "GPU-0a"]),
        ("cpu,cuda:0", [None, "GPU-0a"]),
    ],
)
def test_gpus_are_named_by_all_by_number_or_by_uuid(text: str, uuids: list[str | None]) -> None:
    assert [spec.gpu and spec.gpu.uuid for spec in parse_devices(text, 8 * GIB, FOUND)] == uuids


@pytest.mark.parametrize("text", ["cuda:2", "cuda:GPU-", "cuda:0,gpu", "gpu:0", "cuda*2", "cuda:0*2", "rocm:GPU-0a"])
def test_a_gpu_that_is_not_there_or_not_one_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(DeviceError, match="write"):
        parse_devices(text, 8 * GIB, FOUND)


def test_no_gpu_is_a_cpu_by_default_and_an_error_when_one_was_asked_for() -> None:
    found = Found((), ("cuda: no usable NVIDIA driver",))
    assert parse_devices("", 8 * GIB, found) == (DeviceSpec("cpu", 8 * GIB),)
    with pytest.raises(DeviceError, match="no usable NVIDIA driver"):
        parse_devices("gpu", 8 * GIB, found)


def test_a_gpu_has_one_supervisor(tmp_path: Path) -> None:
    """Field case 69: the second one is told who has it; what nobody named is left out, not waited for."""
    (first,) = claim_devices(parse_devices("cuda:0", GIB, FOUND), "box", tmp_path)
    assert (first.name, first.kind, first.index, first.model) == ("GPU-0a", "cuda", 0, "NVIDIA L4")
    assert first.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-0a"}
    for wanted in ("cuda:0", "cuda:0,cuda:1"):
        with pytest.raises(DevicesBusy, match=rf"GPU-0a \(held by process {os.getpid()}\)"):
            claim_devices(parse_devices(wanted, GIB, FOUND), "box", tmp_path)
    others = claim_devices(parse_devices("gpu", GIB, FOUND), "box", tmp_path)
    assert [device.name for device in others] == ["GPU-1a", "ROCM-9"]
    with pytest.raises(DevicesBusy):
        claim_devices(parse_devices("gpu", GIB, FOUND), "box", tmp_path)
    release_devices((first, *others))
    again = claim_devices(parse_devices("gpu", GIB, FOUND), "box", tmp_path)
    assert len(again) == 3
    release_devices(again)


def test_a_child_of_a_cpu_device_sees_no_gpu(tmp_path: Path) -> None:
    (device,) = claim_devices(parse_devices("cpu", GIB, FOUND), "box", tmp_path)
    assert device.environment["CUDA_VISIBLE_DEVICES"] == ""
    release_devices([device])

"""Devices: what the operator writes, and names that no two supervisors share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.gpu_worker.devices import DeviceError, DeviceSpec, claim_devices, parse_devices

GIB = 1 << 30


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
    ["", "gpu", "cpu*0", "cpu*-1", "cpu:4GiB", "sim", "sim:", "sim:24GB", "sim:1MiB", "cpu,,cpu", "cpu*9999", "CPU"],
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

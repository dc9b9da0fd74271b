"""Whose death is proven by a lock, and whose is not."""

from pathlib import Path

import orjson
import pytest

from services.gpu_worker.config import Host
from services.gpu_worker.devices import Device
from services.gpu_worker.takeover import is_dead, uses

HOST = Host("box", "boot-1", 1, 1, 1, Path("/tmp"))
DEVICE = Device("cpu-box-0-0", "cpu", 0, 1, lock_fd=-1, lock_inode=77)


def fields(name: str = "cpu-box-0-0", inode: int = 77, boot: str = "boot-1", host: str = "box") -> dict[str, str]:
    devices = [{"uuid": name, "lockInode": inode}]
    return {"host": host, "boot": boot, "devices": orjson.dumps(devices).decode()}


@pytest.mark.parametrize(
    ("rival", "in_use", "dead"),
    [
        (fields(), True, True),
        (fields(inode=78), True, False),
        (fields(boot="boot-0"), True, False),
        (fields(host="other"), True, False),
        (fields(name="cpu-box-1-0"), False, True),
        ({"host": "box", "boot": "boot-1", "devices": "{"}, False, True),
    ],
)
def test_only_the_same_lock_of_the_same_boot_proves_a_death(rival: dict[str, str], in_use: bool, dead: bool) -> None:
    assert uses(rival, [DEVICE]) is in_use
    assert not in_use or is_dead(rival, HOST, [DEVICE]) is dead


def test_without_a_boot_id_nothing_is_proven() -> None:
    unknown = Host("box", "", 1, 1, 1, Path("/tmp"))
    assert not is_dead(fields(boot=""), unknown, [DEVICE])

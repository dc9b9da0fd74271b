"""Authors and devices that run out of memory, really: the kernel refuses what is beyond a child's limit."""

import pytest

from services.gpu_worker.process.resident import Resident
from services.gpu_worker.residency import self_test
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.slots import quarantine
from tests.gpu_worker.rig import eventually

MIB = 1 << 20
TAKES = '''
"""Takes `mib` of memory with the library that `with` names, holds it in a frame of its own, and says who it is."""
import os
def take(mib, library):
    if library == "numpy":
        import numpy
        block = numpy.ones(mib << 17)
    elif library == "torch":
        import torch
        block = torch.ones(mib << 18)
    else:
        block = bytearray(mib << 20)
        block[::4096] = b"x" * len(range(0, len(block), 4096))
    return len(block)
def prepare():
    take(1, os.environ.get("WITH"))  # imports are no part of the slice
def load(device, prepared):
    library = os.environ.get("WITH")
    take(int(os.environ.get("LOAD_MIB", "1")), library)
    return library
def run(model, inputs, job):
    if "text" in inputs:
        raise RuntimeError(inputs["text"])
    held = []
    for mib in inputs["mib"]:
        held.append(take(mib, inputs.get("library", model)))
    return {"pid": os.getpid()}
'''


class Crowd:
    """Call it to leave a device only so many MiB, or None for all it has. `tests`: how often a device was tested."""

    def __init__(self) -> None:
        self.left_mib: dict[str, int | None] = {}
        self.tests = 0

    def __call__(self, device: str, mib: int | None) -> None:
        self.left_mib[device] = mib

    async def tests_go_on(self, count: int = 2) -> None:
        """Wait until the device was tested so many times more."""
        enough = self.tests + count
        await eventually(lambda: self.tests >= enough, f"{count} more tests of the device")


def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Let a device have only so many MiB, whatever its supervisor believes: the rest is a foreign process's."""
    found = Crowd()
    confine, passes = Resident.confine, self_test.passes

    def confined(self: Resident, slice_bytes: int) -> None:
        confine(self, slice_bytes)
        left = found.left_mib.get(self.device.name)
        if left is not None:
            self.process.memory.limit(min(slice_bytes, left * MIB))

    async def counted(memory: DeviceMemory) -> bool:
        passed = await passes(memory)
        found.tests += 1
        return passed

    monkeypatch.setattr(Resident, "confine", confined)
    monkeypatch.setattr(self_test, "passes", counted)
    monkeypatch.setattr(quarantine, "FIRST_PAUSE_S", 0.05)
    return found

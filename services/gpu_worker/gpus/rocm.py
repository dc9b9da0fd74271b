"""AMD's GPUs through torch, in a process of its own: the supervisor never imports it. Never run on such a GPU.

Promises: without a driver nothing is started. Memory of the device comes from the kernel's files, so it needs no
context; who holds it is not told.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import orjson

from services.gpu_worker.gpus.facts import Gpu, Memory

DRIVER = Path("/dev/kfd")
PCI = Path("/sys/bus/pci/devices")
ASK_S = 60.0  # importing torch takes seconds
_ASK = """
import json, torch
found = []
for number in range(torch.cuda.device_count() if torch.version.hip else 0):
    told = torch.cuda.get_device_properties(number)
    place = "%04x:%02x:%02x.0" % (
        getattr(told, "pci_domain_id", 0), getattr(told, "pci_bus_id", 0), getattr(told, "pci_device_id", 0))
    found.append([str(getattr(told, "uuid", "")), told.name, torch.version.hip, told.total_memory, place])
print(json.dumps(found))
"""


class RocmAbsent(Exception):
    """No AMD GPU can be used; the text says why."""


class Rocm:
    """The GPUs that were found, and where the kernel tells of each."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def gpus(self, interpreter: str = sys.executable) -> tuple[Gpu, ...]:
        """Ask torch. Raises RocmAbsent."""
        if not DRIVER.exists():
            raise RocmAbsent(f"no AMD driver ({DRIVER} is not there)")
        try:
            told = subprocess.run(
                [interpreter, "-I", "-c", _ASK], capture_output=True, timeout=ASK_S, check=True
            ).stdout
            rows = orjson.loads(told)
        except (OSError, subprocess.SubprocessError, ValueError):
            raise RocmAbsent("there is an AMD driver, but no torch here that could be asked for its GPUs") from None
        found = []
        for number, (uuid, name, driver, total_bytes, place) in enumerate(rows):
            key = f"ROCM-{uuid or place}"
            self._places[key] = place
            found.append(Gpu("rocm", number, key, name, driver, total_bytes))
        if not found:
            raise RocmAbsent("torch sees no AMD GPU")
        return tuple(found)

    def memory(self, uuid: str) -> Memory | None:
        """Return the memory of a device now; None where the kernel does not tell."""
        folder = PCI / self._places.get(uuid, "nowhere")
        with contextlib.suppress(OSError, ValueError):
            total, used = (int((folder / f"mem_info_vram_{name}").read_text()) for name in ("total", "used"))
            return Memory(total, max(0, total - used), used)
        return None

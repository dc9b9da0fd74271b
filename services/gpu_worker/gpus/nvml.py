"""NVIDIA's management library: the GPUs of this host by UUID, their memory, and who holds it.

Promises: where there is no driver, or no binding for it, that is known in milliseconds and said in one sentence; no
CUDA context is made, so looking costs no memory of the device. Figures that a device does not tell are None.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from services.gpu_worker.gpus.facts import Activity, Gpu, Memory


class NvmlAbsent(Exception):
    """There is no NVML on this host; the text says why."""


class Nvml:
    """See the module. `library` is `pynvml`, initialised."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handles: dict[str, Any] = {}  # by UUID
        self._parents: dict[str, Any] = {}  # of MIG slices

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all of them; of a GPU that is cut into MIG slices the slices."""
        driver = str(self._library.nvmlSystemGetDriverVersion())
        found: list[Gpu] = []
        for number in range(self._library.nvmlDeviceGetCount()):
            with contextlib.suppress(self._library.NVMLError):  # one that is lost does not hide the others
                whole = self._library.nvmlDeviceGetHandleByIndex(number)
                for handle in self._slices(whole) or [whole]:
                    found.append(self._gpu(handle, whole, len(found), driver))
        return tuple(found)

    def memory(self, uuid: str) -> Memory | None:
        """Return the memory of a device now; None if it cannot be asked any more."""
        memory: Memory | None = self._asked(lambda: self._memory(self._handle(uuid)))
        return memory

    def holders(self, uuid: str) -> dict[int, int | None]:
        """Return bytes by process (its number as the driver sees it); None where the driver does not tell."""
        library = self._library
        found: dict[int, int | None] = {}
        for ask in (library.nvmlDeviceGetComputeRunningProcesses, library.nvmlDeviceGetGraphicsRunningProcesses):
            for process in self._asked(lambda ask=ask: ask(self._handle(uuid))) or ():  # type: ignore[misc]
                size = process.usedGpuMemory
                found[int(process.pid)] = None if size is None else max(found.get(process.pid) or 0, int(size))
        return found

    def activity(self, uuid: str) -> Activity:
        """Return how it does now. A MIG slice tells no utilization; it is as warm as the GPU it is part of."""
        library, whole = self._library, self._parents.get(uuid)
        utilization = self._asked(lambda: library.nvmlDeviceGetUtilizationRates(self._handle(uuid)).gpu)
        sensor = library.NVML_TEMPERATURE_GPU
        temperature = self._asked(lambda: library.nvmlDeviceGetTemperature(whole or self._handle(uuid), sensor))
        return Activity(
            None if utilization is None else int(utilization), None if temperature is None else int(temperature)
        )

    def _gpu(self, handle: Any, whole: Any, index: int, driver: str) -> Gpu:
        library = self._library
        uuid = str(library.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        if handle is not whole:
            self._parents[uuid] = whole
        name = str(library.nvmlDeviceGetName(handle))
        return Gpu("cuda", index, uuid, name, driver, self._memory(handle).total_bytes)

    def _slices(self, whole: Any) -> list[Any]:
        """Return the MIG slices of a GPU; written from NVIDIA's documentation, never run on one."""
        with contextlib.suppress(self._library.NVMLError):
            if self._library.nvmlDeviceGetMigMode(whole)[0] == self._library.NVML_DEVICE_MIG_ENABLE:
                return list(self._made_slices(whole))
        return []

    def _made_slices(self, whole: Any) -> Iterator[Any]:
        for number in range(self._library.nvmlDeviceGetMaxMigDeviceCount(whole)):
            with contextlib.suppress(self._library.NVMLError):  # most places for a slice are empty
                yield self._library.nvmlDeviceGetMigDeviceHandleByIndex(whole, number)

    def _memory(self, handle: Any) -> Memory:
        """Ask for version 2, which tells what the driver keeps for itself from what is used; old drivers have none."""
        library = self._library
        try:
            told = library.nvmlDeviceGetMemoryInfo(handle, library.nvmlMemory_v2)
            kept_bytes = int(told.reserved)
        except (library.NVMLError, AttributeError):
            told, kept_bytes = library.nvmlDeviceGetMemoryInfo(handle), 0
        return Memory(int(told.total) - kept_bytes, int(told.free), int(told.used))

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._library.nvmlDeviceGetHandleByUUID(uuid)
        return self._handles[uuid]

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._library.NVMLError:  # not supported here, no permission, or the device is lost
            return None


def open_nvml() -> Nvml:
    """Return the library, initialised for as long as this process lives. Raises NvmlAbsent."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise NvmlAbsent("nvidia-ml-py is not installed (pip install 'headrace[gpu]')") from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise NvmlAbsent(f"no usable NVIDIA driver ({error})") from None
    return Nvml(library)

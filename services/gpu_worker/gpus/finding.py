"""Which GPUs this host has. Where it has none, that takes milliseconds and is said in words."""

from collections.abc import Mapping

from services.gpu_worker.gpus.facts import Activity, Found, Gpu, Memory, visible
from services.gpu_worker.gpus.nvml import Nvml, NvmlAbsent, open_nvml
from services.gpu_worker.gpus.rocm import Rocm, RocmAbsent


class Gpus:
    """The GPUs of this host and whom to ask about each."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._nvml: Nvml | None = None
        self._rocm = Rocm()
        cuda, no_cuda = self._find_cuda(environ.get("CUDA_VISIBLE_DEVICES"))
        rocm, no_rocm = self._find_rocm(environ.get("HIP_VISIBLE_DEVICES"))
        self.found = Found(cuda + rocm, no_cuda + no_rocm)

    def memory(self, uuid: str) -> Memory | None:
        """Return the memory of a device now; None if it does not tell."""
        return self._nvml.memory(uuid) if self._is_cuda(uuid) and self._nvml else self._rocm.memory(uuid)

    def holders(self, uuid: str) -> dict[int, int | None]:
        """Return the bytes of a device by process, as far as they are told."""
        return self._nvml.holders(uuid) if self._is_cuda(uuid) and self._nvml else {}

    def activity(self, uuid: str) -> Activity:
        """Return how busy and warm a device is."""
        return self._nvml.activity(uuid) if self._is_cuda(uuid) and self._nvml else Activity()

    def _is_cuda(self, uuid: str) -> bool:
        return not uuid.startswith("ROCM-")

    def _find_cuda(self, wanted: str | None) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
        try:
            self._nvml = open_nvml()
        except NvmlAbsent as error:
            return (), (f"cuda: {error}",)
        there = self._nvml.gpus()
        left = visible(there, wanted)
        if left:
            return left, ()
        hidden = f"CUDA_VISIBLE_DEVICES={wanted} hides all {len(there)}" if there else "the driver sees no GPU"
        return (), (f"cuda: {hidden}",)

    def _find_rocm(self, wanted: str | None) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
        try:
            there = self._rocm.gpus()
        except RocmAbsent as error:
            return (), (f"rocm: {error}",)
        left = visible(there, wanted)
        return left, () if left else (f"rocm: HIP_VISIBLE_DEVICES={wanted} hides all {len(there)}",)

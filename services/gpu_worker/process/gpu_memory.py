"""The memory of a child on a GPU: measured by the driver, and told by torch's allocator in the child.

The slice is enforced in the child (child/device.py); memory of the host is not limited. The driver tells what a process
holds now, the allocator what it had at most: together they are the peak, context and other libraries included.
"""

from collections.abc import Mapping

from services.gpu_worker.gpus.gauge import CONTEXT_BYTES, Gauge
from services.gpu_worker.process.memory import Measured, ProcessMemory


class GpuMemory(ProcessMemory):
    """See the module. Without a gauge, or where the driver names no processes, the allocator is all there is."""

    def __init__(self, pid: int, gauge: Gauge | None) -> None:
        super().__init__(pid)
        self._gauge, self._seen_bytes = gauge, 0
        self.context_bytes = CONTEXT_BYTES if gauge is None else gauge.context_bytes
        if gauge is not None:
            gauge.adopt(pid)

    def arm(self) -> None:
        """Nothing was taken of the device before."""

    def limit(self, slice_bytes: int) -> None:
        """The child does it."""

    def reset_peak(self) -> None:
        self._seen_bytes = 0

    def sample(self, holders: Mapping[int, int | None] | None = None) -> None:
        """Take what it is seen to hold, now or by a reading: what no allocator tells has no other peak."""
        held_bytes = None if self._gauge is None else self._gauge.bytes_of(self._pid, holders)
        self._seen_bytes = max(self._seen_bytes, held_bytes or 0)

    def measure(self, allocator: Mapping[str, int] | None = None) -> Measured:
        """Return what it holds, and the most it held since `reset_peak`."""
        held_bytes = self._held()
        reserved_bytes = allocator.get("reserved", 0) if allocator else 0
        if held_bytes is None and allocator is not None:
            held_bytes = reserved_bytes + self.context_bytes
        elif held_bytes is not None and allocator is not None and self._gauge is not None:
            self.context_bytes = self._gauge.learn_context(held_bytes, reserved_bytes)
        if held_bytes is None:
            return Measured(None, None)
        above_bytes = max(0, allocator.get("peak", 0) - reserved_bytes) if allocator else 0
        return Measured(held_bytes, max(held_bytes + above_bytes, self._seen_bytes))

    def _held(self) -> int | None:
        return None if self._gauge is None else self._gauge.bytes_of(self._pid)

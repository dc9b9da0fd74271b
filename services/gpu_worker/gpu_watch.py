"""What the GPUs of a supervisor hold at each heartbeat: others' memory goes off the books, the rest is shown.

Promises: a job that fits only without what others hold waits instead of running out of memory; what is told to the
scheduler moves in steps, so that a process that breathes does not fill the log.
"""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from services.gpu_worker.process.gpu_memory import GpuMemory
from services.gpu_worker.residency.device_memory import DeviceMemory

STEP_BYTES = 256 << 20
log = structlog.get_logger()


class GpuWatch:
    """See the module. Devices that are no GPUs are left alone."""

    def __init__(self, memories: Sequence[DeviceMemory]) -> None:
        self._memories = [memory for memory in memories if memory.device.gauge is not None]
        self._told: dict[DeviceMemory, int] = {}
        self._shown: dict[DeviceMemory, Mapping[str, int | None]] = {}

    async def look(self) -> None:
        """Read all of them."""
        for memory in self._memories:
            await self._look_at(memory)

    def describe(self, memory: DeviceMemory) -> Mapping[str, int | None]:
        """Return what the heartbeat shows of a device."""
        return self._shown.get(memory, {})

    def room_bytes(self, memory: DeviceMemory) -> int:
        """Return what a job may have of a device, as the scheduler is told; never 0, which would mean: not known."""
        room_bytes = memory.ledger.room_bytes
        if memory.device.is_gpu:
            room_bytes = self._told[memory] = in_steps(room_bytes, self._told.get(memory))
        return max(1, room_bytes)

    async def _look_at(self, memory: DeviceMemory) -> None:
        gauge, booked_bytes = memory.device.gauge, memory.ledger.held_bytes
        assert gauge is not None
        reading = await asyncio.to_thread(gauge.read)
        foreign_bytes = gauge.foreign_bytes(reading, max(booked_bytes, memory.ledger.held_bytes))
        if foreign_bytes is None:
            log.error("gpu_tells_nothing", device=memory.device.name)
        else:
            memory.set_foreign_bytes(foreign_bytes)
        for resident in memory.children.residents:
            if isinstance(resident.process.memory, GpuMemory):
                resident.process.memory.sample(reading.holders)
        self._shown[memory] = reading.describe(memory.ledger.foreign_bytes)


def in_steps(room_bytes: int, told_bytes: int | None, step_bytes: int = STEP_BYTES) -> int:
    """Return whole steps, at most what there is; what was told stays until it is wrong, or a good step too low.

    >>> in_steps(1000, None, 256), in_steps(1030, 768, 256), in_steps(1090, 768, 256), in_steps(700, 768, 256)
    (768, 768, 1024, 512)
    """
    if told_bytes is not None and told_bytes <= room_bytes < told_bytes + step_bytes + step_bytes // 4:
        return told_bytes
    return room_bytes // step_bytes * step_bytes

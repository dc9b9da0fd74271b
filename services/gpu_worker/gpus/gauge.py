"""The memory of one GPU as its driver tells it: what is free, what each process holds, what is not ours.

Promises: a process of ours, its helpers, and one of ours that has ended a moment ago are never counted as foreign.
What a process takes before it allocates anything is learned from the children that say what they allocated.
"""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from services.gpu_worker.gpus.facts import Activity, Memory, foreign_bytes

CONTEXT_BYTES = 512 << 20  # of a process with CUDA, cuBLAS and cuDNN, until one was measured: 0.3 to 0.6 GB
MOST_REMEMBERED = 256


class Driver(Protocol):
    """Whoever can be asked about a GPU (gpus.finding.Gpus)."""

    def memory(self, uuid: str) -> Memory | None: ...
    def holders(self, uuid: str) -> dict[int, int | None]: ...
    def activity(self, uuid: str) -> Activity: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A GPU at one moment."""

    memory: Memory | None
    holders: Mapping[int, int | None]
    activity: Activity

    def describe(self, foreign: int) -> dict[str, int | None]:
        """Return what the heartbeat says about it."""
        return {
            "bytesFree": self.memory.free_bytes if self.memory else None,
            "bytesForeign": foreign,
            "utilizationPercent": self.activity.utilization_percent,
            "temperatureC": self.activity.temperature_c,
        }


class Gauge:
    """See the module."""

    def __init__(self, driver: Driver, uuid: str) -> None:
        self._driver, self._uuid = driver, uuid
        self._ours: deque[int] = deque(maxlen=MOST_REMEMBERED)  # groups of our children, also of ended ones
        self.context_bytes, self._has_learned = CONTEXT_BYTES, False

    def read(self) -> Reading:
        """Look at all of it; takes milliseconds."""
        ask, uuid = self._driver, self._uuid
        return Reading(ask.memory(uuid), ask.holders(uuid), ask.activity(uuid))

    def free_bytes(self) -> int | None:
        """Return what is free now; None if the driver does not tell."""
        memory = self._driver.memory(self._uuid)
        return memory.free_bytes if memory else None

    def adopt(self, group: int) -> None:
        """Note that a process group is ours."""
        self._ours.append(group)

    def bytes_of(self, group: int, holders: Mapping[int, int | None] | None = None) -> int | None:
        """Return what the processes of a group hold, now or by a reading; None if the driver does not name them."""
        there = self._driver.holders(self._uuid) if holders is None else holders
        told = [size for pid, size in there.items() if _group(pid) == group]
        return None if not told or None in told else sum(size or 0 for size in told)

    def foreign_bytes(self, reading: Reading, booked_bytes: int) -> int | None:
        """Return what others hold; None if the driver does not tell. `booked_bytes`: as facts.foreign_bytes."""
        if reading.memory is None:
            return None
        ours = frozenset(_of(reading.holders, set(self._ours)))
        return foreign_bytes(reading.memory, reading.holders, ours, booked_bytes)

    def learn_context(self, held_bytes: int, reserved_bytes: int) -> int:
        """Return what a process holds beside its allocator's bytes; the least of all is what a new one begins with."""
        context_bytes = max(0, held_bytes - reserved_bytes)
        self.context_bytes = min(self.context_bytes, context_bytes) if self._has_learned else context_bytes
        self._has_learned = True
        return context_bytes


def _of(holders: Iterable[int], groups: set[int]) -> Iterable[int]:
    return (pid for pid in holders if pid in groups or _group(pid) in groups)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except (OSError, OverflowError):
        return -1

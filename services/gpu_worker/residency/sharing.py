"""Several busy children on one simulated device: none may grow into what another really holds, looked at each 2 ms.

Slices never exceed the device, but a process may hold more than its books say: a thread of an idle model's author that
allocates. On a card the next allocation of whoever comes last fails then, and so it does here. With one busy child
nothing is done.
"""

import asyncio
from collections.abc import Callable, Sequence

from services.gpu_worker.process.resident import Resident

LOOK_S = 0.002


class Sharing:
    """`busy` returns those that load or run, `all_of` every process of the device."""

    def __init__(
        self, total_bytes: int, busy: Callable[[], Sequence[Resident]], all_of: Callable[[], Sequence[Resident]]
    ) -> None:
        self._total_bytes, self._busy, self._all_of = total_bytes, busy, all_of
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on, as long as more than one is busy."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer, busy = None, self._busy()
        if len(busy) < 2:
            for resident in busy:  # it has its slice again
                resident.process.memory.limit(resident.slice_bytes)
            return
        used = {each: each.process.memory.measure().used_bytes or 0 for each in self._all_of()}
        free_bytes = self._total_bytes - sum(used.values())
        for resident in busy:
            limit_bytes = limit_for(resident.slice_bytes, used.get(resident, 0), free_bytes)
            resident.process.memory.limit(limit_bytes)
        self.begin()


def limit_for(slice_bytes: int, used_bytes: int, free_bytes: int) -> int:
    """Return what a child may hold: its slice, or what it has and what is really free, if that is less.

    >>> limit_for(60, 10, 90), limit_for(60, 10, 20), limit_for(60, 10, -5)
    (60, 30, 10)
    """
    return min(slice_bytes, used_bytes + max(0, free_bytes))

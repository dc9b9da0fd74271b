"""A slot out of service: why, and how it comes back.

Promises: three passes in a row that ran out of memory take the slot out of service, as the next job would fare no
better; its idle children are ended, and it is back once none is stuck and a fresh child got what the slot offers. Back
on probation: the next pass that runs out of memory takes it out again, one that completes ends that.
"""

import asyncio

import structlog

from services.gpu_worker.residency import self_test
from services.gpu_worker.residency.device_memory import DeviceMemory

OOMS_IN_ROW = 3
PATIENCE_S = 30.0  # that a job which is over waits for the test of its device; a driver may hang
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0  # after a test that failed
log = structlog.get_logger()


class Quarantine:
    """Of one slot. `reason`: why it is out of service, for people; None: it is not."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.reason: str | None = None
        self._memory = memory
        self._ooms = 0  # in a row

    def count_oom(self) -> None:
        """Note a pass that ran out of memory."""
        self._ooms += 1
        if self._ooms >= OOMS_IN_ROW:
            self.begin(f"out of memory {self._ooms} times in a row")

    def clear(self) -> None:
        """Note a pass that completed."""
        self._ooms = 0

    async def test(self) -> bool:
        """Test the device now; if it does not pass in time the slot is out of service."""
        testing = self._memory.children.spawn(self_test.passes(self._memory))
        await asyncio.wait([testing], timeout=PATIENCE_S)
        passed = testing.done() and not testing.cancelled() and testing.result()
        if not passed:
            self.begin("the device has less memory than it is said to have")
        return passed

    def begin(self, reason: str) -> None:
        """Take the slot out of service until it passes."""
        if self.reason is None:
            self.reason = reason
            log.error("slot_quarantined", device=self._memory.device.name, reason=reason)
            self._memory.children.spawn(self._recover())

    async def _recover(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._memory.has_stuck or not await self_test.passes(self._memory):
            if self._memory.has_stuck:
                await self._memory.children.change()
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
        log.warning("slot_back", device=self._memory.device.name, after=self.reason)
        self.reason, self._ooms = None, OOMS_IN_ROW - 1

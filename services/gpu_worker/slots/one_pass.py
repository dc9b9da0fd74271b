"""The mutable part of what a slot runs: one attempt, or the members of a batch, from the load to the last word."""

import asyncio
from collections.abc import Sequence

from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.attempt import Loaded, Member
from services.gpu_worker.slots.frames import LoadFailed
from services.gpu_worker.slots.memory import Measured
from services.gpu_worker.slots.outcome import Outcome, Stop
from services.gpu_worker.slots.resident import Resident


class Pass:
    """See the module."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = {(member.attempt.job, member.attempt.fence): member for member in members}
        self.first = members[0].attempt
        self.limits = min((member.attempt.limits for member in members), key=watchdog.strictness)
        self.in_batch = False  # several members were given to run_batch()
        self.resident: Resident | None = None  # whose end is the pass's end
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.load_failed: LoadFailed | None = None
        self.refused: Outcome | None = None  # the device has no room
        self.lost = self.ran_out = False  # the child on its device; or it said that it is out of memory
        self.exit_status: int | None = None
        self.stop: Stop | None = None  # why all of it is stopped
        self.measured = Measured(None, None)
        self.asked_s: float | None = None  # when it had to wait for its model
        self.begun_s: float | None = None
        self.heard_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.ladder: asyncio.Task[None] | None = None

    @property
    def open(self) -> list[Member]:
        """The members that have not ended."""
        return [member for member in self.members.values() if not member.outcome.done()]

    def budget_bytes(self, most_bytes: int) -> int:
        """Return what it needs of the device, never more than the device has; 0: not measured."""
        if len(self.members) == 1:
            return self.first.budget_bytes
        budgets = [member.attempt.budget_bytes for member in self.members.values()]
        return min(sum(budgets), max(most_bytes, *budgets)) if all(budgets) else 0

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def ends_within(self, seconds: float) -> bool:
        await asyncio.wait([self.ended], timeout=seconds)
        return self.ended.done()

    def tell_load_started(self, now_s: float) -> None:
        self.asked_s = now_s
        for member in self.members.values():
            member.listener.on_load_started()

    def tell_loaded(self, loaded: Loaded) -> None:
        self.asked_s = None
        for member in self.open:
            member.listener.on_loaded(loaded)

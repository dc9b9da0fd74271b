"""The mutable part of what a slot runs: one attempt, or the members of a batch, from the load to the last word."""

import asyncio
from collections.abc import Sequence

from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.attempt import Member
from services.gpu_worker.slots.child_process import ChildProcess
from services.gpu_worker.slots.frames import LoadFailed
from services.gpu_worker.slots.outcome import Stop


class Pass:
    """See the module."""

    def __init__(self, members: Sequence[Member], most_bytes: int) -> None:
        self.members = {(member.attempt.job, member.attempt.fence): member for member in members}
        self.first = members[0].attempt
        self.limits = min((member.attempt.limits for member in members), key=watchdog.strictness)
        self.budget_bytes = min(sum(member.attempt.budget_bytes for member in members), most_bytes)
        self.in_batch = False  # several members were given to run_batch()
        self.child: ChildProcess | None = None  # whose end is the pass's end
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.load_failed: LoadFailed | None = None
        self.exit_status: int | None = None
        self.stop: Stop | None = None  # why all of it is stopped
        self.peak_bytes: int | None = None
        self.begun_s: float | None = None
        self.heard_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.ladder: asyncio.Task[None] | None = None

    @property
    def open(self) -> list[Member]:
        """The members that have not ended."""
        return [member for member in self.members.values() if not member.outcome.done()]

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def ends_within(self, seconds: float) -> bool:
        await asyncio.wait([self.ended], timeout=seconds)
        return self.ended.done()

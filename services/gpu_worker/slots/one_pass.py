"""The mutable part of what a slot runs: one attempt, or the members of a batch, from the load to the last word."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence

from services.gpu_worker.process.frames import Cancelled, End, LoadFailed
from services.gpu_worker.process.memory import Measured, oom_kills
from services.gpu_worker.process.resident import Resident
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.attempt import Loaded, Member
from services.gpu_worker.slots.outcome import Outcome, Stop, classify, of_member


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

    def want(self, room_bytes: int) -> Want:
        """Return what it needs of a device that has this much room for models."""
        return Want(self.first.model, self._budget_bytes(room_bytes), self.first.alone)

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

    def leave_out_stopped(self) -> None:
        """End the members that were stopped before it begins: their author code never runs."""
        for key, member in self.members.items():
            if member.stop is not None:
                self.resolve(member, Cancelled(*key, run_ms=0.0))

    def measure(self, allocator: Mapping[str, int] | None) -> None:
        """Note at its end what it was seen to hold; what is printed from now on is nobody's."""
        if self.resident is not None:
            self.measured = self.resident.process.memory.measure(allocator)
            self.resident.process.log.end()

    def resolve(self, member: Member, last: End | LoadFailed | None) -> None:
        """Give a member its outcome: at its end frame, or at the end of the pass for want of one."""
        resident = self.resident
        struck = resident is not None and self.exit_status is not None and oom_kills() > resident.oom_kills
        stop = member.stop or self.stop
        outcome = classify(last, self.exit_status, stop, struck, resident.process.log.tail if resident else "")
        if stop is None and self.refused is not None:
            outcome = self.refused
        if self.in_batch or (len(self.members) > 1 and self.begun_s is None):
            outcome = of_member(outcome, last)
        log_bytes = resident.process.log.written_bytes if resident else 0
        member.outcome.set_result(outcome._replace(peak_bytes=self.measured.peak_bytes, log_bytes=log_bytes))

    def resolve_open(self) -> None:
        """Give an outcome to the members that had no end frame of their own."""
        for key, member in self.members.items():
            if not member.outcome.done():
                left_waiting = self.resident is None and self.load_failed is None and member.stop is not None
                self.resolve(member, Cancelled(*key, run_ms=0.0) if left_waiting else self.load_failed)

    def share_log(self) -> None:
        """Let each member have the log of the pass: who printed what cannot be told apart."""
        for member in list(self.members.values())[1:]:
            with contextlib.suppress(OSError):  # nothing was printed, or there is no room
                os.link(self.first.log_path, member.attempt.log_path)

    def _budget_bytes(self, most_bytes: int) -> int:
        """Return what the members need together, never more than there is; 0: not measured."""
        if len(self.members) == 1:
            return self.first.budget_bytes
        budgets = [member.attempt.budget_bytes for member in self.members.values()]
        return min(sum(budgets), max(most_bytes, *budgets)) if all(budgets) else 0

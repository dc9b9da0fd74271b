"""What a child says and does during a pass, and what that means for the pass.

Promises: a member hears its own frames and nothing after its end; what is said about an attempt that is over, or about
none of the pass, is dropped.
"""

import asyncio

from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.frames import BatchOver, Cancelled, Done, End, Failed, Progress, Telemetry
from services.gpu_worker.slots.attempt import Member
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import OUT_OF_MEMORY, Stop
from services.gpu_worker.slots.stopping import stop_pass


class Hearing:
    """The user of a resident for as long as the pass runs in it."""

    def __init__(self, run: Pass, bounds: Bounds) -> None:
        self._run, self._bounds = run, bounds

    def on_frame(self, frame: Telemetry | End | BatchOver) -> None:
        """Take a frame about an attempt of the pass."""
        run, member = self._run, self._run.members.get((frame.job, frame.fence))
        if isinstance(frame, BatchOver):
            if member is not None and run.in_batch:
                run.measure(frame.allocator)
                run.end()
        elif member is None or member.outcome.done() or run.ended.done():
            return
        elif isinstance(frame, Done | Cancelled | Failed):
            self._on_end(member, frame)
        else:
            if isinstance(frame, Progress):
                run.heard_s = asyncio.get_running_loop().time()
            member.listener.on_telemetry(frame)

    def on_violation(self) -> None:
        """Kill what broke the protocol."""
        stop_pass(self._run, Stop.PROTOCOL, self._bounds)

    def on_gone(self, exit_status: int) -> None:
        """End the pass with its child."""
        run = self._run
        if not run.ended.done():
            run.exit_status = exit_status
            if run.begun_s is None and run.resident is not None:
                run.load_failed = run.resident.load_failed
            run.end()

    def _on_end(self, member: Member, frame: End) -> None:
        run = self._run
        if isinstance(frame, Failed):
            run.lost = run.lost or frame.lost is True
            run.ran_out = run.ran_out or frame.code == OUT_OF_MEMORY
        if run.in_batch:  # what the pass held is told once, when the batch is over
            run.resolve(member, frame)
        else:
            run.measure(frame.allocator)
            run.resolve(member, frame)
            run.end()

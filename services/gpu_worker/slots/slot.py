"""One slot of a device: at most one child, one model in it, one attempt or one batch of attempts at a time.

Promises: `run` and `run_batch` return when the author's code has stopped, be it by its own answer or by the reaping of
its whole process group, and by then each attempt has exactly one Outcome; one member of a batch is stopped without the
others, and what kills the pass is laid at no member's door; a child that crashed, was killed or broke the protocol is
never used again. Does not promise to get rid of a process that even SIGKILL cannot end: such a slot is
quarantined and says so.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.attempt import Attempt, Bounds, Listener, Member
from services.gpu_worker.slots.child_process import ChildProcess, ChildSpec, spawn
from services.gpu_worker.slots.frames import (
    BatchOver,
    Cancelled,
    Done,
    End,
    Failed,
    Frame,
    Heartbeat,
    LoadFailed,
    Prepared,
    Progress,
    ProtocolError,
    Ready,
    Telemetry,
    encode_cancel,
    encode_close,
    encode_load,
    encode_run,
    encode_run_batch,
)
from services.gpu_worker.slots.memory import oom_kills
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import Outcome, Stop, classify, of_member


class SlotQuarantined(Exception):
    """A process of this slot survived SIGKILL; its memory cannot be given to anybody."""


class Slot:
    """See the module. `environment` makes the whole environment of a child from what its model adds."""

    def __init__(
        self,
        device: Device,
        bounds: Bounds,
        environment: Callable[[Mapping[str, str]], dict[str, str]],
    ) -> None:
        self.device, self.quarantined = device, False
        self._bounds, self._environment = bounds, environment
        self._loop = asyncio.get_running_loop()
        self._child: ChildProcess | None = None
        self._model: ModelSpec | None = None  # what is loaded, or being loaded, in the child
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._run: Pass | None = None
        self._condemned = False  # the child was signalled or broke the protocol
        self._oom_kills = 0
        self.heard_s = 0.0  # loop time of the child's last frame: a metric

    @property
    def child_pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def warm_model(self) -> ModelSpec | None:
        """The model that is resident and ready to run."""
        return self._model if self._child and self._ready.done() and not self._condemned else None

    @property
    def loaded_model(self) -> ModelSpec | None:
        """The model that is in the child, or on its way into it."""
        return self._model if self._child else None

    @property
    def state(self) -> str:
        """One word for people: idle, loading, busy, quarantined."""
        if self.quarantined:
            return "quarantined"
        if self._run is None:
            return "idle"
        return "busy" if self._run.begun_s is not None else "loading"

    async def run(self, attempt: Attempt, listener: Listener) -> Outcome:
        """Run one accepted attempt to its end; a second one meanwhile is a mistake of the caller."""
        member = Member(attempt, listener)
        await self.run_batch([member])
        return member.outcome.result()

    async def run_batch(self, members: Sequence[Member]) -> None:
        """Run accepted attempts of one model in one pass; each member's `outcome` is there when it has ended."""
        if self.quarantined:
            raise SlotQuarantined(self.device.name)
        assert self._run is None
        run = self._run = Pass(members, max(self.device.bytes_total, members[0].attempt.budget_bytes))
        try:
            if self.warm_model != run.first.model:
                await self._load(run)
            if not run.ended.done():
                self._begin(run)
            await run.ended
            await self._conclude(run)
        finally:
            self._run = None
            if run.timer:
                run.timer.cancel()
            if run.ladder:
                run.ladder.cancel()

    def stop(self, job: str, fence: int, reason: Stop) -> None:
        """Begin to end that attempt if it is running; otherwise nothing happens. Other members go on."""
        run = self._run
        member = run.members.get((job, fence)) if run is not None else None
        if run is None or member is None or member.outcome.done() or run.ended.done():
            return
        if reason.outranks(member.stop or run.stop):
            member.stop = reason
        if all(other.stop is not None for other in run.open):
            self._end_pass(run)
        elif self._child is not None and run.in_batch:  # before, it is just left out
            self._child.cancel(encode_cancel(job, fence))

    def _stop_pass(self, run: Pass, reason: Stop) -> None:
        """Begin to end all that runs."""
        run.stop = run.stop or reason
        self._end_pass(run)

    def _end_pass(self, run: Pass) -> None:
        if run.ladder is None and not run.ended.done():
            run.ladder = asyncio.ensure_future(self._climb(run))

    async def close(self) -> None:
        """End the child, politely if it is idle, and wait until its memory is back."""
        if self._child is not None and self._ready.done() and not self._condemned:
            self._child.send(encode_close())
            await asyncio.wait([self._child.gone], timeout=self._bounds.cancel_grace_s)
        await self._reap()

    async def _load(self, run: Pass) -> None:
        """Replace the child by one that has the attempt's model resident, or end the run."""
        await self.close()
        for member in run.members.values():
            member.listener.on_load_started()
        model, lock = run.first.model, (self.device.lock_fd,) if self.device.lock_fd >= 0 else ()
        spec = ChildSpec(model.entry, model.interpreter, self._environment(model.env), lock)
        self._ready, self._condemned, self._oom_kills = self._loop.create_future(), False, oom_kills()
        try:
            child = run.child = self._child = spawn(spec, self._on_frame, self._on_violation)
        except OSError as error:
            run.load_failed = LoadFailed("model_load_failed", f"cannot start a child: {error.strerror}")
            run.end()
            return
        self._model = model
        child.log.begin(run.first.log_path)
        child.gone.add_done_callback(lambda gone: self._on_gone(child, gone.result()))
        await child.connect()  # only now, as what it says at once must find the child and the run that wait for it
        await asyncio.wait([self._ready, run.ended], timeout=self._bounds.load_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done() and not run.ended.done():
            self._stop_pass(run, Stop.LOAD_TIMEOUT)
            await run.ended

    def _begin(self, run: Pass) -> None:
        child = run.child = self._child
        if child is None or run.stop is not None:
            run.end()
            return
        for key, member in run.members.items():
            if member.stop is not None:  # stopped while it loaded: author code never runs
                self._resolve(run, member, Cancelled(*key, run_ms=0.0))
        asked = [member.attempt for member in run.open]
        if not asked:
            run.end()
            return
        child.memory.limit(run.budget_bytes)
        child.memory.reset_peak()
        child.log.begin(run.first.log_path)
        run.in_batch = len(asked) > 1
        if run.in_batch:
            child.send(encode_run_batch([(one.job, one.fence, one.inputs, str(one.scratch)) for one in asked]))
        else:
            child.send(encode_run(asked[0].job, asked[0].fence, asked[0].inputs, str(asked[0].scratch)))
        run.begun_s = run.heard_s = self._loop.time()
        self._watch(run)

    def _watch(self, run: Pass) -> None:
        """Stop the run at its deadline; progress moves the deadline, so look again instead of resetting timers."""
        due = watchdog.deadline(run.limits, run.begun_s or 0.0, run.heard_s)
        if due is None or run.ended.done():
            return
        due_s, reason = due
        if due_s <= self._loop.time():
            self._stop_pass(run, reason)
        else:
            run.timer = self._loop.call_at(due_s, self._watch, run)

    async def _climb(self, run: Pass) -> None:
        """The kill ladder: ask, SIGTERM, SIGKILL, each with its grace and for the whole process group."""
        if self._child is not None:
            for member in run.open:
                self._child.cancel(encode_cancel(member.attempt.job, member.attempt.fence))
        patience_s = 0.0 if run.stop is Stop.PROTOCOL else self._bounds.cancel_grace_s
        for grace_s, number in ((patience_s, signal.SIGTERM), (self._bounds.term_grace_s, signal.SIGKILL)):
            if await run.ends_within(grace_s):
                return
            self._condemned = True
            if self._child is not None:
                self._child.signal_group(number)
        if not await run.ends_within(self._bounds.reap_s):
            self.quarantined = True
            run.end()

    async def _conclude(self, run: Pass) -> None:
        if self._condemned and not self.quarantined:
            await self._reap()
        if run.in_batch:
            self._share_log(run)
        for member in run.open:
            self._resolve(run, member, run.load_failed)

    def _resolve(self, run: Pass, member: Member, last: End | LoadFailed | None) -> None:
        """Give a member its outcome: at its end frame, or at the end of the pass for want of one."""
        struck = run.exit_status is not None and oom_kills() > self._oom_kills
        stop = member.stop or run.stop
        outcome = classify(last, run.exit_status, stop, host_oom=struck)
        if run.in_batch or (len(run.members) > 1 and run.begun_s is None):
            outcome = of_member(outcome, last)
        log_bytes = run.child.log.written_bytes if run.child else 0
        member.outcome.set_result(replace(outcome, peak_bytes=run.peak_bytes, log_bytes=log_bytes))

    def _share_log(self, run: Pass) -> None:
        """Let each member have the log of the pass: who printed what cannot be told apart."""
        first = run.first.log_path
        for member in list(run.members.values())[1:]:
            with contextlib.suppress(OSError):  # nothing was printed, or there is no room
                os.link(first, member.attempt.log_path)

    async def _reap(self) -> None:
        """Kill what is left of the child and wait until its memory is certainly back."""
        child = self._child
        if child is None:
            return
        self._condemned = True
        child.signal_group(signal.SIGKILL)
        await asyncio.wait([child.gone], timeout=self._bounds.reap_s)
        self.quarantined = not child.gone.done()

    def _on_frame(self, frame: Frame) -> None:
        self.heard_s = self._loop.time()
        match frame:
            case Heartbeat():
                pass
            case Prepared():
                self._on_prepared()
            case Ready():
                self._on_ready(frame)
            case LoadFailed():
                if self._run:  # its exit follows and ends the run
                    self._run.load_failed = frame
            case BatchOver():
                self._on_batch_over(frame)
            case _:
                self._on_attempt_frame(frame)

    def _on_prepared(self) -> None:
        child, run = self._child, self._run
        if child is None or run is None:
            return
        child.memory.arm()
        child.memory.limit(run.budget_bytes)
        child.memory.reset_peak()
        child.send(encode_load(self.device.kind, self.device.index, run.budget_bytes, self._bounds.result_bytes))

    def _on_ready(self, frame: Ready) -> None:
        if not self._ready.done():
            self._ready.set_result(None)
            for member in self._run.open if self._run else ():
                member.listener.on_loaded(frame.ms)

    def _on_attempt_frame(self, frame: Telemetry | End) -> None:
        run = self._run
        member = run.members.get((frame.job, frame.fence)) if run is not None else None
        if run is None or member is None or member.outcome.done() or run.ended.done():
            return  # of an attempt that is over
        run.heard_s = self.heard_s if isinstance(frame, Progress) else run.heard_s
        if not isinstance(frame, (Done, Cancelled, Failed)):
            member.listener.on_telemetry(frame)
            return
        if not run.in_batch and self._child is not None:
            run.peak_bytes = self._child.memory.peak_bytes()
            self._child.log.end()
        self._resolve(run, member, frame)
        if not run.in_batch:
            run.end()

    def _on_batch_over(self, frame: BatchOver) -> None:
        run = self._run
        if run is not None and run.in_batch and (frame.job, frame.fence) in run.members:
            if self._child is not None:
                self._child.log.end()
            run.end()

    def _on_violation(self, error: ProtocolError) -> None:
        self._condemned = True
        if self._run is not None:
            self._stop_pass(self._run, Stop.PROTOCOL)
        elif self._child is not None:
            self._child.signal_group(signal.SIGKILL)

    def _on_gone(self, child: ChildProcess, exit_status: int) -> None:
        if self._child is child:
            self._child, self._model = None, None
        if self._run is not None and self._run.child is child and not self._run.ended.done():
            self._run.exit_status = exit_status
            self._run.end()

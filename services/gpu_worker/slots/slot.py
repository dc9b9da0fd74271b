"""One slot of a device: at most one attempt, or one batch of attempts, at a time, in a child that has its model.

Promises: `run` and `run_batch` return when the author's code has stopped, be it by its own answer or by the reaping of
its whole process group, and by then each attempt has exactly one Outcome; one member of a batch is stopped without the
others, and what kills the pass is laid at no member's door; a child that crashed, was killed or broke the protocol is
never used again, nor one that is lost on its device or has run out of memory twice. Does not promise to get rid of a
process that even SIGKILL cannot end. Such a slot is in quarantine until it is gone, and so is one that has run out of
memory three times in a row until a fresh child can have what the slot offers.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.residency.device_memory import DeviceMemory, Refusal
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.residency.self_test import was_whole
from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.attempt import Attempt, Listener, Loaded, Member
from services.gpu_worker.slots.child_process import cannot_start
from services.gpu_worker.slots.frames import (
    BatchOver,
    Cancelled,
    Done,
    End,
    Failed,
    LoadFailed,
    Progress,
    Telemetry,
    encode_cancel,
    encode_run,
    encode_run_batch,
)
from services.gpu_worker.slots.memory import ProcessMemory, oom_kills
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import OUT_OF_MEMORY, Outcome, Stop, Verdict, classify, of_member
from services.gpu_worker.slots.quarantine import Quarantine
from services.gpu_worker.slots.resident import Resident, first_of

MOST_OOMS = 2  # of one child: what it holds by then is anybody's guess
STUCK = "a process of the device cannot be ended"


class SlotQuarantined(Exception):
    """The slot is out of service; see `Quarantine`."""


class Slot:
    """See the module. Several slots may share the memory of a device."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self._quarantine = Quarantine(memory)
        self._given_bytes = 0  # slice of the last pass
        self._bounds = memory.bounds
        self._loop = asyncio.get_running_loop()
        self._resident: Resident | None = None  # the last one it used
        self._run: Pass | None = None

    @property
    def device(self) -> Device:
        return self.memory.device

    @property
    def quarantined(self) -> bool:
        """Whether nothing may run here for now."""
        return self._quarantine.reason is not None

    @property
    def child_pid(self) -> int | None:
        return self._resident.pid if self._resident and not self._resident.is_gone else None

    @property
    def process_memory(self) -> ProcessMemory | None:
        """The memory of the child it used last, for who looks at it while it runs."""
        return self._resident.process.memory if self._resident and not self._resident.is_gone else None

    @property
    def warm_model(self) -> ModelSpec | None:
        """The model that was used last, if it is resident and ready to run."""
        return self._resident.model if self._resident and self._resident.is_ready else None

    @property
    def loaded_model(self) -> ModelSpec | None:
        """The model that was used last, or that is on its way into memory."""
        return self._resident.model if self._resident and not self._resident.is_gone else None

    @property
    def state(self) -> str:
        """One word for people: idle, waiting (for memory), loading, busy, quarantined."""
        if self.quarantined:
            return "quarantined"
        if self._run is None:
            return "idle"
        if self._run.begun_s is not None:
            return "busy"
        return "loading" if self._run.resident is not None else "waiting"

    @property
    def waits_for(self) -> str | None:
        """Why what is started does not run yet."""
        run = self._run
        if run is None or self.quarantined:
            return self._quarantine.reason
        return self.memory.reason(self._want(run)) if run.resident is None else None

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
        run = self._run = Pass(members)
        try:
            resident = self.memory.at_once(self, self._want(run)) or await self._wait_for_room(run)
            if resident is not None:
                self._resident = run.resident = resident
                self._given_bytes = resident.slice_bytes
                resident.user = self
                if run.asked_s is not None or not resident.is_ready:
                    await self._load(run, resident)
                if not run.ended.done():
                    self._begin(run, resident)
            await run.ended
            await self._conclude(run)
            self._count(run)
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
        elif run.resident is not None and run.in_batch:  # before, it is just left out
            run.resident.process.cancel(encode_cancel(job, fence))

    def expect(self, comes: Sequence[Want]) -> None:
        """Note what is to run next, in order."""
        most_bytes = self.memory.ledger.room_bytes
        self.memory.expect(self, [replace(want, bytes=min(want.bytes, most_bytes)) for want in comes])

    async def gave_all(self) -> bool:
        """Tell whether the last pass had the device for itself, and the device has what it is said to have."""
        return was_whole(self.memory, self._given_bytes) and await self._quarantine.test()

    def _count(self, run: Pass) -> None:
        """Count a pass that ran out of memory, or did not."""
        codes = {member.outcome.result().code for member in run.members.values()}
        if OUT_OF_MEMORY in codes:
            self._quarantine.count_oom()
        elif any(member.outcome.result().verdict is Verdict.COMPLETED for member in run.members.values()):
            self._quarantine.clear()

    def _want(self, run: Pass) -> Want:
        most_bytes = self.memory.ledger.room_bytes if len(run.members) > 1 else 0
        return Want(run.first.model, run.budget_bytes(most_bytes), run.first.alone)

    def _stop_pass(self, run: Pass, reason: Stop) -> None:
        """Begin to end all that runs."""
        run.stop = run.stop or reason
        self._end_pass(run)

    def _end_pass(self, run: Pass) -> None:
        if run.resident is None:
            run.end()
        elif run.ladder is None and not run.ended.done():
            run.ladder = asyncio.ensure_future(self._climb(run, run.resident))

    async def _wait_for_room(self, run: Pass) -> Resident | None:
        """Return the resident that the device gives to the pass, or end the pass."""
        want = self._want(run)
        if want.alone or not self.memory.is_warm(want.model):
            run.tell_load_started(self._loop.time())
        asking = self.memory.ask(self, want)
        await first_of(asking, run.ended)
        if not asking.done():
            asking.cancel()
            await asyncio.wait([asking])
        try:
            found = None if asking.cancelled() else asking.result()
        except OSError as error:
            run.load_failed = LoadFailed("model_load_failed", cannot_start(want.model.interpreter, error))
            found = None
        if isinstance(found, Resident) and not run.ended.done():
            return found
        if isinstance(found, Resident):
            self.memory.put_back(found)
        elif isinstance(found, Refusal):
            if self.memory.has_stuck:
                self._quarantine.begin(STUCK)
            run.refused = _refused(found)
        run.end()
        return None

    async def _load(self, run: Pass, resident: Resident) -> None:
        """Have the model resident, or end the run."""
        if run.asked_s is None:  # it was there when we asked
            run.tell_load_started(self._loop.time())
        if not resident.is_ready:  # else it was loaded while we waited
            resident.process.log.begin(run.first.log_path)
            loading = asyncio.ensure_future(resident.load(resident.slice_bytes))
            await first_of(loading, run.ended, within_s=self._bounds.load_s)
            if not loading.done() and not run.ended.done():
                self._stop_pass(run, Stop.LOAD_TIMEOUT)
            await first_of(loading, run.ended)
        if resident.is_ready:
            self.memory.loaded(resident)
            waited_ms = (self._loop.time() - (run.asked_s or 0.0)) * 1000
            run.tell_loaded(Loaded(waited_ms, resident.process.memory.measure().used_bytes, tuple(resident.evicted)))
            resident.evicted.clear()
        elif not run.ended.done():
            await run.ended

    def _begin(self, run: Pass, resident: Resident) -> None:
        if not resident.is_ready or run.stop is not None:
            run.end()
            return
        for key, member in run.members.items():
            if member.stop is not None:  # stopped while it loaded: author code never runs
                self._resolve(run, member, Cancelled(*key, run_ms=0.0))
        asked = [member.attempt for member in run.open]
        if not asked:
            run.end()
            return
        process = resident.process
        resident.confine(resident.slice_bytes)
        process.memory.reset_peak()
        process.log.begin(run.first.log_path)
        run.in_batch = len(asked) > 1
        if run.in_batch:
            process.send(encode_run_batch([(one.job, one.fence, one.inputs, str(one.scratch)) for one in asked]))
        else:
            process.send(encode_run(asked[0].job, asked[0].fence, asked[0].inputs, str(asked[0].scratch)))
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

    async def _climb(self, run: Pass, resident: Resident) -> None:
        """The kill ladder: ask, SIGTERM, SIGKILL, each with its grace and for the whole process group."""
        for member in run.open:
            resident.process.cancel(encode_cancel(member.attempt.job, member.attempt.fence))
        patience_s = 0.0 if run.stop is Stop.PROTOCOL else self._bounds.cancel_grace_s
        for grace_s, number in ((patience_s, signal.SIGTERM), (self._bounds.term_grace_s, signal.SIGKILL)):
            if await run.ends_within(grace_s):
                return
            resident.signal(number)
        if not await run.ends_within(self._bounds.reap_s):
            resident.stuck = True
            run.end()

    async def _conclude(self, run: Pass) -> None:
        """Give the resident back; what was condemned is reaped first."""
        if run.resident is not None:
            await self._give_back(run, run.resident)
        if run.in_batch:
            self._share_log(run)
        for key, member in run.members.items():
            if not member.outcome.done():
                left_waiting = run.resident is None and run.load_failed is None and member.stop is not None
                self._resolve(run, member, Cancelled(*key, run_ms=0.0) if left_waiting else run.load_failed)

    async def _give_back(self, run: Pass, resident: Resident) -> None:
        resident.ooms += run.ran_out
        if run.lost or resident.ooms >= MOST_OOMS:
            resident.condemned = True
        if resident.condemned and not resident.stuck and not resident.is_gone:
            await resident.reap()
        if resident.stuck:
            self._quarantine.begin(STUCK)
        resident.user = None
        self.memory.release(resident, run.measured.used_bytes)

    def _resolve(self, run: Pass, member: Member, last: End | LoadFailed | None) -> None:
        """Give a member its outcome: at its end frame, or at the end of the pass for want of one."""
        resident = run.resident
        struck = resident is not None and run.exit_status is not None and oom_kills() > resident.oom_kills
        stop = member.stop or run.stop
        outcome = classify(last, run.exit_status, stop, host_oom=struck)
        if stop is None and run.refused is not None:
            outcome = run.refused
        if run.in_batch or (len(run.members) > 1 and run.begun_s is None):
            outcome = of_member(outcome, last)
        log_bytes = resident.process.log.written_bytes if resident else 0
        member.outcome.set_result(replace(outcome, peak_bytes=run.measured.peak_bytes, log_bytes=log_bytes))

    def _share_log(self, run: Pass) -> None:
        """Let each member have the log of the pass: who printed what cannot be told apart."""
        first = run.first.log_path
        for member in list(run.members.values())[1:]:
            with contextlib.suppress(OSError):  # nothing was printed, or there is no room
                os.link(first, member.attempt.log_path)

    def on_frame(self, frame: Telemetry | End | BatchOver) -> None:
        """Take what the child says about an attempt of the pass; of one that is over it is dropped."""
        run = self._run
        if isinstance(frame, BatchOver):
            self._on_batch_over(frame)
            return
        member = run.members.get((frame.job, frame.fence)) if run is not None else None
        if run is None or run.resident is None or member is None or member.outcome.done() or run.ended.done():
            return
        if not isinstance(frame, (Done, Cancelled, Failed)):
            if isinstance(frame, Progress):
                run.heard_s = self._loop.time()
            member.listener.on_telemetry(frame)
            return
        if isinstance(frame, Failed):
            run.lost = run.lost or frame.lost is True
            run.ran_out = run.ran_out or frame.code == OUT_OF_MEMORY
        if not run.in_batch:
            run.measured = run.resident.process.memory.measure(frame.allocator)
            run.resident.process.log.end()
        self._resolve(run, member, frame)
        if not run.in_batch:
            run.end()

    def _on_batch_over(self, frame: BatchOver) -> None:
        run = self._run
        if run is not None and run.resident is not None and run.in_batch and (frame.job, frame.fence) in run.members:
            run.measured = run.resident.process.memory.measure(frame.allocator)
            run.resident.process.log.end()
            run.end()

    def on_violation(self) -> None:
        """Kill what broke the protocol."""
        if self._run is not None:
            self._stop_pass(self._run, Stop.PROTOCOL)

    def on_gone(self, exit_status: int) -> None:
        """End the pass with its child."""
        run = self._run
        if run is not None and not run.ended.done():
            run.exit_status = exit_status
            if run.begun_s is None and run.resident is not None:
                run.load_failed = run.resident.load_failed
            run.end()


def _refused(refusal: Refusal) -> Outcome:
    """Say what having no room means for an attempt: not its fault, unless it asks for more than there ever is."""
    if refusal.final:
        return Outcome(Verdict.FAILED, "too_large", refusal.reason)
    return Outcome(Verdict.HANDED_BACK, message=refusal.reason)

"""One slot of a device: at most one attempt, or one batch of attempts, at a time, in a child that has its model.

Promises: `run` and `run_batch` return when the author's code has stopped, be it by its own answer or by the reaping of
its whole process group, and by then each attempt has exactly one Outcome; one member of a batch is stopped without the
others, and what kills the pass is laid at no member's door; a child that crashed, was killed or broke the protocol is
never used again, nor one that is lost on its device or has run out of memory twice. Does not promise to get rid of a
process that even SIGKILL cannot end. Such a slot is in quarantine until it is gone, and so is one that has run out of
memory three times in a row until a fresh child can have what the slot offers.
"""

import asyncio
from collections.abc import Sequence

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.process.encoding import encode_cancel, encode_run, encode_run_batch
from services.gpu_worker.process.memory import ProcessMemory
from services.gpu_worker.process.resident import Resident
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.residency.self_test import was_whole
from services.gpu_worker.slots import stopping
from services.gpu_worker.slots.attempt import Attempt, Listener, Member
from services.gpu_worker.slots.hearing import Hearing
from services.gpu_worker.slots.loading import load, room_for
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import OUT_OF_MEMORY, Outcome, Stop, Verdict
from services.gpu_worker.slots.quarantine import Quarantine

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
        return self._child.pid if self._child else None

    @property
    def process_memory(self) -> ProcessMemory | None:
        """The memory of the child it used last, for who looks at it while it runs."""
        return self._child.process.memory if self._child else None

    @property
    def warm_model(self) -> ModelSpec | None:
        """The model that was used last, if it is resident and ready to run."""
        return self._child.model if self._child and self._child.is_ready else None

    @property
    def loaded_model(self) -> ModelSpec | None:
        """The model that was used last, or that is on its way into memory."""
        return self._child.model if self._child else None

    @property
    def _child(self) -> Resident | None:
        """The child it used last, while there is one."""
        return self._resident if self._resident and not self._resident.is_gone else None

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
        return self.memory.reason(run.want(self.memory.ledger.room_bytes)) if run.resident is None else None

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
            want = run.want(self.memory.ledger.room_bytes)
            resident = self.memory.at_once(self, want) or await room_for(self, run, self.memory)
            if resident is not None:
                await self._use(run, resident)
            elif run.refused is not None and self.memory.has_stuck:
                self._quarantine.begin(STUCK)
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
            stopping.end_pass(run, self._bounds)
        elif run.resident is not None and run.in_batch:  # before, it is just left out
            run.resident.process.cancel(encode_cancel(job, fence))

    def expect(self, comes: Sequence[Want]) -> None:
        """Note what is to run next, in order."""
        self.memory.expect(self, comes)

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

    async def _use(self, run: Pass, resident: Resident) -> None:
        """Have the model loaded in the resident and begin, unless all is stopped meanwhile."""
        self._resident = run.resident = resident
        self._given_bytes = resident.slice_bytes
        resident.user = Hearing(run, self._bounds)
        if run.asked_s is not None or not resident.is_ready:
            await load(run, resident, self.memory)
        if run.ended.done():
            return
        if resident.is_ready and run.stop is None:
            run.leave_out_stopped()
            if run.open:
                self._begin(run, resident)
                return
        run.end()

    def _begin(self, run: Pass, resident: Resident) -> None:
        resident.confine(resident.slice_bytes)
        resident.process.memory.reset_peak()
        resident.process.log.begin(run.first.log_path)
        asked = [member.attempt for member in run.open]
        run.in_batch = len(asked) > 1
        if run.in_batch:
            frame = encode_run_batch([(one.job, one.fence, one.inputs, str(one.scratch)) for one in asked])
        else:
            frame = encode_run(asked[0].job, asked[0].fence, asked[0].inputs, str(asked[0].scratch))
        resident.process.send(frame)
        run.begun_s = run.heard_s = self._loop.time()
        stopping.watch(run, self._bounds)

    async def _conclude(self, run: Pass) -> None:
        """Give the resident back; what was condemned is reaped first."""
        if run.resident is not None:
            await self._give_back(run, run.resident)
        if run.in_batch:
            run.share_log()
        run.resolve_open()

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

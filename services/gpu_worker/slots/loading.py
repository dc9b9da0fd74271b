"""How a pass comes to have its model: room on the device first, then the weights in it.

Promises: a pass that does not get its model is told why and has ended; one that is stopped meanwhile leaves the line,
and what was given to it by then goes to the next.
"""

import asyncio
from collections.abc import Hashable

from services.gpu_worker.process.child_process import cannot_start
from services.gpu_worker.process.frames import LoadFailed
from services.gpu_worker.process.resident import Resident, first_of
from services.gpu_worker.residency.device_memory import DeviceMemory, Refusal
from services.gpu_worker.slots.attempt import Loaded
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict
from services.gpu_worker.slots.stopping import stop_pass


async def room_for(slot: Hashable, run: Pass, memory: DeviceMemory) -> Resident | None:
    """Return the resident that the device gives to the pass; None if the pass has ended without one."""
    found = await _asked(slot, run, memory)
    if isinstance(found, Resident):
        if not run.ended.done():
            return found
        memory.put_back(found)
    elif isinstance(found, Refusal):
        run.refused = _refused(found)
    run.end()
    return None


async def load(run: Pass, resident: Resident, memory: DeviceMemory) -> None:
    """Have the model resident, or end the pass."""
    loop = asyncio.get_running_loop()
    if run.asked_s is None:  # it was there when we asked
        run.tell_load_started(loop.time())
    if not resident.is_ready:  # else it was loaded while we waited
        await _read_weights(run, resident, memory)
    if resident.is_ready:
        memory.loaded(resident)
        waited_ms = (loop.time() - (run.asked_s or 0.0)) * 1000
        used_bytes = resident.process.memory.measure().used_bytes
        run.tell_loaded(Loaded(waited_ms, used_bytes, tuple(resident.evicted), resident.load_peak_bytes))
        resident.evicted.clear()
    elif not run.ended.done():
        await run.ended


async def _asked(slot: Hashable, run: Pass, memory: DeviceMemory) -> Resident | Refusal | None:
    """Ask the device, and take the question back when the pass ends before it is answered."""
    want = run.want(memory.ledger.room_bytes)
    if want.alone or not memory.is_warm(want.model):
        run.tell_load_started(asyncio.get_running_loop().time())
    asking = memory.ask(slot, want)
    await first_of(asking, run.ended)
    if not asking.done():
        asking.cancel()
        await asyncio.wait([asking])
    try:
        return None if asking.cancelled() else asking.result()
    except OSError as error:
        run.load_failed = LoadFailed("model_load_failed", cannot_start(want.model.interpreter, error))
        return None


async def _read_weights(run: Pass, resident: Resident, memory: DeviceMemory) -> None:
    resident.process.log.begin(run.first.log_path)
    loading = asyncio.ensure_future(resident.load(resident.slice_bytes))
    await first_of(loading, run.ended, within_s=memory.bounds.load_s)
    if not loading.done() and not run.ended.done():
        stop_pass(run, Stop.LOAD_TIMEOUT, memory.bounds)
    await first_of(loading, run.ended)


def _refused(refusal: Refusal) -> Outcome:
    """Say what having no room means for an attempt: not its fault, unless it asks for more than there ever is."""
    if refusal.final:
        return Outcome(Verdict.FAILED, "too_large", refusal.reason)
    return Outcome(Verdict.HANDED_BACK, message=refusal.reason)

"""How a pass is brought to its end: at a deadline, at a wish, by the kill ladder.

Promises: once begun, it is over when the graces of `Bounds` are, whatever author code does. A process that even SIGKILL
does not end is `stuck`.
"""

import asyncio
import signal

from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.encoding import encode_cancel
from services.gpu_worker.process.resident import Resident
from services.gpu_worker.slots import watchdog
from services.gpu_worker.slots.one_pass import Pass
from services.gpu_worker.slots.outcome import Stop


def stop_pass(run: Pass, reason: Stop, bounds: Bounds) -> None:
    """Begin to end all that runs; the first reason is the one that counts."""
    run.stop = run.stop or reason
    end_pass(run, bounds)


def end_pass(run: Pass, bounds: Bounds) -> None:
    """Begin to end a pass whose members have reasons of their own; at once where no child has it yet."""
    if run.resident is None:
        run.end()
    elif run.ladder is None and not run.ended.done():
        run.ladder = asyncio.ensure_future(_climb(run, run.resident, bounds))


def watch(run: Pass, bounds: Bounds) -> None:
    """Stop the pass at its deadline; progress moves the deadline, so look again instead of resetting timers."""
    loop = asyncio.get_running_loop()
    due = watchdog.deadline(run.limits, run.begun_s or 0.0, run.heard_s)
    if due is None or run.ended.done():
        return
    due_s, reason = due
    if due_s <= loop.time():
        stop_pass(run, reason, bounds)
    else:
        run.timer = loop.call_at(due_s, watch, run, bounds)


async def _climb(run: Pass, resident: Resident, bounds: Bounds) -> None:
    """The kill ladder: ask, SIGTERM, SIGKILL, each with its grace and for the whole process group."""
    for member in run.open:
        resident.process.cancel(encode_cancel(member.attempt.job, member.attempt.fence))
    patience_s = 0.0 if run.stop is Stop.PROTOCOL else bounds.cancel_grace_s
    for grace_s, number in ((patience_s, signal.SIGTERM), (bounds.term_grace_s, signal.SIGKILL)):
        if await run.ends_within(grace_s):
            return
        resident.signal(number)
    if not await run.ends_within(bounds.reap_s):
        resident.stuck = True
        run.end()

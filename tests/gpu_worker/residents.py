"""Models that hold what they are told to hold, on a device whose memory the kernel limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from contracts.model_spec import ModelSpec
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.slots.outcome import Outcome
from tests.gpu_worker.rig import PATIENCE_S, QUICK, Recorder, Rig, model, rig

MIB = 1 << 20
AUTHOR = '''
"""Takes so much of the device in load() and so much more in run(), and writes to all of it."""
import os, time
def block(mib):
    taken = bytearray(int(mib) << 20)
    taken[::4096] = b"x" * len(range(0, len(taken), 4096))
    return taken
def prepare():
    time.sleep(float(os.environ.get("PREPARE_S", "0")))
def load(device, prepared):
    time.sleep(float(os.environ.get("LOAD_S", "0")))
    return block(os.environ.get("HOLD_MIB", "40"))
def run(model, inputs, job):
    mine = block(inputs.get("mib", 1))
    for step in range(inputs.get("steps", 1)):
        job.progress(step, inputs.get("steps", 1))
        time.sleep(inputs.get("step_s", 0))
    return {"pid": os.getpid()}
'''


def named(folder: Path, name: str, hold_mib: int = 40, **env: str) -> ModelSpec:
    """Return a model that holds so much while it is resident."""
    entry = folder / "author.py"
    entry.write_text(AUTHOR)
    return replace(model("noop"), name=name, entry=entry, env={"HOLD_MIB": str(hold_mib), **env})


@asynccontextmanager
async def sim(folder: Path, device_mib: int, bounds: Bounds = QUICK, max_models: int = 4) -> AsyncIterator[Rig]:
    async with rig(folder, bounds, "sim", device_mib=device_mib, max_models=max_models) as own:
        yield own


async def run(own: Rig, spec: ModelSpec, budget_mib: int = 64, **inputs: float) -> tuple[Outcome, Recorder]:
    recorder = Recorder()
    async with asyncio.timeout(PATIENCE_S):
        return await own.slot.run(own.attempt(spec, budget_mib, **inputs), recorder), recorder


def pids(own: Rig) -> dict[str, int]:
    return {str(each["model"]): int(str(each["childPid"])) for each in own.memory.children.describe()}

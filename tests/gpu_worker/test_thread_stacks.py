"""The stacks of a library's threads count against a slice: they must not eat it on a machine of many cores."""

import os
from pathlib import Path

import pytest

from contracts.models import load
from services.gpu_worker.devices import Device
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.process.memory import SUPPORTED
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.slots.attempt import Attempt
from services.gpu_worker.slots.outcome import Verdict
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits
from tests.gpu_worker.rig import QUICK, Recorder, model, rig

SHIPPED = Path(__file__).parents[2] / "pipelines" / "pipelines.toml"
MIB = 1 << 20
STACKS = """
import resource, subprocess, sys, threading

def run(model, inputs, job):
    deep = []
    def down(n):
        return n if n == 0 else down(n - 1) + 1
    thread = threading.Thread(target=lambda: deep.append(down(800)))
    thread.start()
    thread.join()
    helper = "import resource; print(resource.getrlimit(resource.RLIMIT_STACK)[0])"
    told = subprocess.run([sys.executable, "-c", helper], capture_output=True, text=True, check=True).stdout
    return {"own": resource.getrlimit(resource.RLIMIT_STACK)[0], "helpers": int(told), "deep": deep[0]}
"""


@pytest.mark.skipif(not SUPPORTED, reason="memory is limited on Linux only")
async def test_the_demo_draws_within_what_it_declares_with_the_threads_of_a_large_machine(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    spec = load(SHIPPED, with_profiles=False).find("scenes")
    assert spec is not None
    device = Device("sim-test-0-0", "sim", 0, 1 << 30, lock_fd=-1, lock_inode=0)
    memory = DeviceMemory(device, QUICK, lambda env: child_environment(os.environ, env, threads=24, limits_memory=True))
    inputs = {"prompt": "a hill", "size": 64, "steps": 1}
    (tmp_path / "scratch").mkdir()
    try:
        attempt = Attempt("j", 1, spec, inputs, spec.vram_bytes, tmp_path / "scratch", tmp_path / "log", Limits(60))
        outcome = await Slot(memory).run(attempt, Recorder())
    finally:
        await memory.close()

    assert outcome.verdict is Verdict.COMPLETED, outcome
    assert (outcome.peak_bytes or 0) < spec.vram_bytes


async def test_author_code_and_its_helpers_have_the_usual_stack(tmp_path: Path) -> None:
    (tmp_path / "stacks.py").write_text(STACKS)
    async with rig(tmp_path) as desk:
        outcome = await desk.slot.run(desk.attempt(model("echo", entry=tmp_path / "stacks.py")), Recorder())

    assert outcome.result == {"own": 8 * MIB, "helpers": 8 * MIB, "deep": 800}, outcome

"""What a swap of models costs a slot: B after A where only one of them fits, with and without knowing of B before.

`python -m benchmarks.prewarm` needs torch (EXTRAS=torch). A swap is what the job waits for: A's child has to end, B's
to start, import torch, read its weights, and copy them to the device. With B on deck all but the end of A and the copy
happens while A runs. Rounds of both kinds take turns; each begins with no child at all. Two subjects: a net of 256 MiB,
and the demo's model in torch. Beside the net stands a bare interpreter that does the same in one process, without A.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import low, spread
from benchmarks.processes import ROOT
from contracts.model_spec import ModelSpec
from contracts.models import load
from services.gpu_worker.devices import Device
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.process.frames import Telemetry
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.slots.attempt import Attempt, Loaded
from services.gpu_worker.slots.outcome import Verdict
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits

ROUNDS = 5
LAYERS = 64  # of 4 MiB
DEVICE_MIB, BUDGET_MIB = 448, 432
MIB = 1 << 20
HERE = Path(__file__).parent
BAR = 0.30
_BARE = """
import sys, time
begun = time.monotonic()
sys.path.insert(0, sys.argv[1])
import torch_net
class device: kind = "cpu"
torch_net.load(device, torch_net.prepare())
print(time.monotonic() - begun)
"""


@dataclass
class Heard:
    """How long an attempt waited for its model."""

    ms: float = 0.0

    def on_load_started(self) -> None: ...

    def on_loaded(self, loaded: Loaded) -> None:
        self.ms = loaded.ms

    def on_telemetry(self, frame: Telemetry) -> None: ...


class Swaps:
    """A slot on a device that has room for one of two models: a net that runs for as long as it is told, and B."""

    def __init__(self, a: ModelSpec, b: ModelSpec, inputs: Mapping[str, object], folder: Path) -> None:
        self.a, self.b, self._inputs = replace(a, name="a"), replace(b, name="b"), inputs
        device = Device("sim-bench-0-0", "sim", 0, DEVICE_MIB * MIB, lock_fd=-1, lock_inode=0)
        self.memory = DeviceMemory(device, Bounds(), environment)
        self._slot = Slot(self.memory)
        self._folder, self._numbers = folder, iter(range(1_000))

    async def cold(self) -> float:
        """Swap to B without a warning; returns how long its job waited for its model, in ms."""
        await self.memory.empty()
        await self._run(self.a, {"run_s": 0.1})
        return await self._run(self.b, self._inputs)

    async def warned(self, lasts_s: float) -> float:
        """Swap to B, which lies on deck while A runs for so long."""
        await self.memory.empty()
        await self._run(self.a, {"run_s": 0.1})
        running = asyncio.create_task(self._run(self.a, {"run_s": lasts_s}))
        await asyncio.sleep(0)
        self._slot.expect([Want(self.b, BUDGET_MIB * MIB)])
        await running
        return await self._run(self.b, self._inputs)

    async def _run(self, spec: ModelSpec, inputs: Mapping[str, object]) -> float:
        scratch, heard = self._folder / f"{next(self._numbers)}", Heard()
        scratch.mkdir()
        log, limits = scratch.with_suffix(".log"), Limits(spec.timeout_s)
        attempt = Attempt(f"job_{scratch.name}", 1, spec, inputs, BUDGET_MIB * MIB, scratch, log, limits)
        outcome = await self._slot.run(attempt, heard)
        assert outcome.verdict is Verdict.COMPLETED, (outcome, log.read_text() if log.exists() else "")
        shutil.rmtree(scratch)
        return heard.ms


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return a child's environment."""
    return child_environment(os.environ, extra, threads=1, limits_memory=True)


def bare(env: Mapping[str, str]) -> float:
    """Import, read and copy in one bare process."""
    command = [sys.executable, "-I", "-c", _BARE, str(HERE / "pipelines")]
    return float(subprocess.run(command, env=environment(env), capture_output=True, check=True).stdout) * 1000


def net(folder: Path) -> ModelSpec:
    """Return the net whose weights are a file in the folder."""
    spec = load(HERE / "pipelines" / "pipelines.toml").find("stamp")
    assert spec is not None
    env = {"WEIGHTS": str(folder / "weights.pt"), "LAYERS": str(LAYERS)}
    return replace(spec, entry=HERE / "pipelines" / "torch_net.py", env=env)


def demo() -> ModelSpec:
    """Return the demo's model in torch."""
    spec = load(ROOT / "pipelines" / "extra.toml").find("scenes-torch")
    assert spec is not None
    return spec


async def measure(folder: Path) -> None:
    """Print what was found."""
    big, bares = net(folder), []
    scenes = {"prompt": "a red lighthouse by the sea", "steps": 8, "seed": 7, "size": 64}
    for name, b, inputs in ((f"net of {LAYERS * 4} MiB", big, {"run_s": 0.1}), ("scenes-torch", demo(), scenes)):
        home = folder / name
        home.mkdir()
        swaps, cold, warned = Swaps(big, b, inputs, home), [], []
        await swaps.cold()  # makes the file, and the disk cache warm
        for _ in range(ROUNDS):
            cold.append(await swaps.cold())
            warned.append(await swaps.warned(2 * cold[-1] / 1000))
            bares.append(bare(big.env))
        await swaps.memory.close()
        share = spread([warm / other for warm, other in zip(warned, cold, strict=True)])
        verdict = "held" if share.mid <= BAR else "missed"
        print(f"{name}: cold {low(spread(cold), ' ms', 0)}, on deck before {low(spread(warned), ' ms', 0)}")
        print(f"{name}: on deck before / cold {low(share)}, bar {BAR:.2f}: {verdict}", flush=True)
    print(f"bare import, read and copy of the net: {low(spread(bares), ' ms', 0)}")


def main() -> None:
    """Measure in a folder of its own."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hr-prewarm-") as folder:
        asyncio.run(measure(Path(folder)))
    print(f"{time.monotonic() - begun_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

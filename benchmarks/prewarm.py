"""What a swap of models costs a slot: B after A where only one of them fits, with and without knowing of B before.

`python -m benchmarks.prewarm` needs torch (EXTRAS=torch). A swap is what the job waits for: A's child has to end, B's
to start, import torch, read its weights, and copy them to the device. With B on deck all but the end of A and the copy
happens while A runs. Rounds of both kinds take turns; each begins with no child at all. Beside it stands a bare
interpreter that does the same in one process, without A: import, read, copy.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.figures import cut_up, spread
from contracts.model_spec import ModelSpec
from contracts.models import load
from services.gpu_worker.devices import Device
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.slots.attempt import Attempt, Bounds, Loaded
from services.gpu_worker.slots.child_process import child_environment
from services.gpu_worker.slots.frames import Telemetry
from services.gpu_worker.slots.outcome import Verdict
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits

ROUNDS = 5
LAYERS = 64  # of 4 MiB
MIB = 1 << 20
DEVICE_MIB = LAYERS * 4 + 256  # one model fits, two do not
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
    """A slot on a device that has room for one of the two models."""

    def __init__(self, folder: Path) -> None:
        spec = load(HERE / "pipelines" / "pipelines.toml").find("stamp")
        assert spec is not None
        self._env = {"WEIGHTS": str(folder / "weights.pt"), "LAYERS": str(LAYERS)}
        entry = HERE / "pipelines" / "torch_net.py"
        self.a, self.b = (replace(spec, name=name, entry=entry, env=self._env) for name in ("a", "b"))
        device = Device("sim-bench-0-0", "sim", 0, DEVICE_MIB * MIB, lock_fd=-1, lock_inode=0)
        self.memory = DeviceMemory(device, Bounds(), self.environment)
        self._slot, self._folder, self._numbers = Slot(self.memory), folder, iter(range(1_000))

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return a child's environment."""
        return child_environment(os.environ, extra, threads=1, limits_memory=True)

    async def run(self, spec: ModelSpec, run_s: float) -> float:
        """Run one attempt; returns how long it waited for its model, in ms."""
        number, heard = next(self._numbers), Heard()
        scratch = self._folder / str(number)
        scratch.mkdir()
        budget_bytes = (DEVICE_MIB - 32) * MIB
        attempt = Attempt(
            f"job_{number}", 1, spec, {"run_s": run_s}, budget_bytes, scratch, scratch.with_suffix(".log"), Limits(60.0)
        )
        outcome = await self._slot.run(attempt, heard)
        assert outcome.verdict is Verdict.COMPLETED, outcome
        return heard.ms

    async def cold(self) -> float:
        """Swap to B without a warning."""
        await self.run(self.a, 0.1)
        return await self.run(self.b, 0.1)

    async def prewarmed(self, run_s: float) -> float:
        """Swap to B, which lies on deck while A runs."""
        running = asyncio.create_task(self.run(self.a, run_s))
        while self._slot.state != "busy":  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        self._slot.expect([Want(self.b, (DEVICE_MIB - 32) * MIB)])
        await running
        return await self.run(self.b, 0.1)

    def bare(self) -> float:
        """Import, read and copy in one bare process."""
        command = [sys.executable, "-I", "-c", _BARE, str(HERE / "pipelines")]
        environ = self.environment(self._env)
        return float(subprocess.run(command, env=environ, capture_output=True, check=True).stdout) * 1000


async def measure(folder: Path) -> None:
    """Print the table."""
    swaps = Swaps(folder)
    await swaps.run(swaps.a, 0.1)  # makes the file, and the disk cache warm
    cold, prewarmed, bare = [], [], []
    for _ in range(ROUNDS):
        await swaps.memory.empty()
        cold.append(await swaps.cold())
        await swaps.memory.empty()
        prewarmed.append(await swaps.prewarmed(3 * cold[-1] / 1000))
        bare.append(swaps.bare())
    await swaps.memory.close()
    share = spread([warm / other for warm, other in zip(prewarmed, cold, strict=True)])
    for name, values in (("cold swap", cold), ("prewarmed swap", prewarmed), ("bare import, read, copy", bare)):
        found = spread(values)
        print(f"{name}: {cut_up(found.mid, 0)} ms ({cut_up(found.low, 0)} to {cut_up(found.high, 0)})")
    print(
        f"prewarmed / cold: {cut_up(share.mid)} ({cut_up(share.low)} to {cut_up(share.high)}), "
        f"bar {BAR:.2f}: {'held' if share.mid <= BAR else 'missed'}"
    )


def main() -> None:
    """Measure in a folder of its own."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hr-prewarm-") as folder:
        asyncio.run(measure(Path(folder)))
    print(f"{time.monotonic() - begun_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

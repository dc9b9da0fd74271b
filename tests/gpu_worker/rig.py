"""What the worker's tests share: a real slot with real children, and a listener that can be waited for."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from contracts.model_spec import ModelSpec
from contracts.models import load
from services.gpu_worker.devices import Device
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.process.frames import Telemetry
from services.gpu_worker.process.resident import Environment
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.slots.attempt import Attempt, Loaded
from services.gpu_worker.slots.outcome import Outcome
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits

MODELS = load(Path(__file__).parents[1] / "pipelines" / "pipelines.toml")
PATIENCE_S = 60.0
QUICK = Bounds(cancel_grace_s=0.3, term_grace_s=0.3, reap_s=20.0, load_s=60.0, still_s=1.0)
T = TypeVar("T")


def model(name: str, **changes: Any) -> ModelSpec:
    spec = MODELS.find(name)
    assert spec is not None
    return replace(spec, **changes)


@dataclass
class Recorder:
    """Keeps what a slot tells; `saw` waits for the first frame of a kind."""

    telemetry: list[Telemetry] = field(default_factory=list)
    loads: list[float | None] = field(default_factory=list)
    loaded: list[Loaded] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_load_started(self) -> None:
        self.loads.append(None)

    def on_loaded(self, loaded: Loaded) -> None:
        self.loads.append(loaded.ms)
        self.loaded.append(loaded)

    def on_telemetry(self, frame: Telemetry) -> None:
        self.telemetry.append(frame)
        self.changed.set()

    def of(self, kind: type[T]) -> list[T]:
        return [frame for frame in self.telemetry if isinstance(frame, kind)]

    async def saw(self, kind: type[T]) -> T:
        async with asyncio.timeout(PATIENCE_S):
            while not self.of(kind):
                self.changed.clear()
                await self.changed.wait()
        return self.of(kind)[0]


class Rig:
    """One slot in a folder of its own."""

    def __init__(self, folder: Path, slot: Slot) -> None:
        self.folder, self.slot = folder, slot
        self._numbers = itertools.count(1)

    def beside(self) -> "Rig":
        """Return another slot of the device."""
        other = Rig(self.folder, Slot(self.memory))
        other._numbers = self._numbers
        return other

    @property
    def memory(self) -> DeviceMemory:
        return self.slot.memory

    def attempt(self, spec: ModelSpec, budget_mib: int = 256, limits: Limits | None = None, **inputs: Any) -> Attempt:
        number = next(self._numbers)
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        limits = limits or Limits(spec.timeout_s, spec.silence_s)
        log = self.folder / f"log-{number}"
        return Attempt(f"job_{number}", number, spec, inputs, budget_mib << 20, scratch, log, limits)

    async def run(self, name: str, **inputs: Any) -> Outcome:
        async with asyncio.timeout(PATIENCE_S):
            return await self.slot.run(self.attempt(model(name), **inputs), Recorder())

    def begin(self, attempt: Attempt) -> tuple[Recorder, "asyncio.Task[Outcome]"]:
        recorder = Recorder()
        return recorder, asyncio.ensure_future(self.slot.run(attempt, recorder))


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    return child_environment(os.environ, extra, threads=1, limits_memory=True)


@asynccontextmanager
async def rig(
    folder: Path,
    bounds: Bounds = QUICK,
    kind: str = "cpu",
    environment: Environment = environment,
    device_mib: int = 1024,
    device: Device | None = None,
    **more: Any,
) -> AsyncIterator[Rig]:
    device = device or Device(f"{kind}-test-0-0", kind, 0, device_mib << 20, lock_fd=-1, lock_inode=0)
    memory = DeviceMemory(device, bounds, environment, **more)
    try:
        yield Rig(folder, Slot(memory))
    finally:
        await memory.close()


def alive(pid: int) -> bool:
    """Tell whether a process still runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def eventually(true: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait for a state of the operating system, which tells nobody when it changes."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - nobody sets an event for these
            await asyncio.sleep(0.005)
    assert true(), what

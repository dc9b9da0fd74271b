"""Run the points of a grid in a real child, the worker's own, and note the peaks.

Promises: a fresh child; one run before the first that counts (libraries allocate for good in it), and again after
running out of memory; the highest of several runs of a point counts; each point was seen to run in the slice that a job
of it may be given. What else a run does (files, previews) is thrown away.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contracts.model_spec import ModelSpec
from contracts.profile_fit import WORST_ERROR
from contracts.profiles import Point, reserved
from headrace.vram.grid import Number, is_hopeless
from services.gpu_worker.devices import Device
from services.gpu_worker.machine import in_use, installed
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.process.frames import Telemetry
from services.gpu_worker.process.gpu_memory import GpuMemory
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.slots.attempt import Attempt, Loaded
from services.gpu_worker.slots.outcome import Outcome, Verdict
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits

OUT_OF_MEMORY = frozenset({"out_of_memory", "host_out_of_memory"})
LOG_TAIL_BYTES = 2_000
SAMPLE_S = 0.03
SLICE_TRIES = 6  # each a tenth larger than the one before


class AuditFailed(Exception):
    """A run ended otherwise than by its result or for want of memory; the text says how."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    spec: ModelSpec
    points: Sequence[Mapping[str, Number]]
    inputs: Mapping[str, object]  # what all runs have in common: the prompt and all that is not in the grid
    repeat: int = 2


@dataclass(slots=True)
class Measured:
    """What was found. `skipped` points are larger than one that ran out of memory."""

    points: list[Point] = field(default_factory=list)
    skipped: list[Mapping[str, Number]] = field(default_factory=list)
    runtimes: dict[str, str] = field(default_factory=dict)
    context_bytes: int = 0  # of a process, in none of the peaks
    weights_bytes: int | None = None  # of the model once it is loaded
    load_peak_bytes: int | None = None  # the most it held until then


class _Loads:
    """Listens to attempts for what a loaded model holds."""

    def __init__(self) -> None:
        self.weights_bytes: int | None = None
        self.peak_bytes: int | None = None  # of all loads
        self.count = 0

    def on_load_started(self) -> None: ...
    def on_telemetry(self, frame: Telemetry) -> None: ...

    def on_loaded(self, loaded: Loaded) -> None:
        self.weights_bytes, self.count = loaded.bytes, self.count + 1
        if loaded.peak_bytes is not None:
            self.peak_bytes = max(self.peak_bytes or 0, loaded.peak_bytes)


async def measure(plan: Plan, device: Device, threads: int, folder: Path, on_point: Callable[[int], None]) -> Measured:
    """Measure all points; `on_point` is told the number of those that are over. Raises AuditFailed."""
    runs, versions = _Runs(plan, device, threads, folder), installed(plan.spec.interpreter)
    found, failed = Measured(), list[Mapping[str, Number]]()
    try:
        for number, point in enumerate(plan.points, start=1):
            if is_hopeless(point, failed):
                found.skipped.append(point)
            else:
                found.points.append(await runs.point(point))
                if found.points[-1].peak_bytes is None:
                    failed.append(point)
                found.runtimes |= in_use(runs.slot.child_pid, versions)
                found.context_bytes = max(found.context_bytes, runs.context_bytes)
                found.weights_bytes = runs.loads.weights_bytes
            on_point(number)
        if found.points and found.points[0].peak_bytes is not None:
            found.load_peak_bytes = await runs.load_peak(plan.points[0], found.points[0].peak_bytes)
    finally:
        await runs.memory.close()
    return without_context(found)


def without_context(found: Measured) -> Measured:
    """Take out of the peaks what a process holds anyway."""
    points = [
        point if point.peak_bytes is None else point.model_copy(
            update={"peak_bytes": max(0, point.peak_bytes - found.context_bytes)}
        )
        for point in found.points
    ]  # fmt: skip
    load_peak_bytes = found.load_peak_bytes
    if load_peak_bytes is not None:
        load_peak_bytes = max(0, load_peak_bytes - found.context_bytes)
    return replace(found, points=points, load_peak_bytes=load_peak_bytes)


class _Runs:
    """Runs one point after another in the same child."""

    def __init__(self, plan: Plan, device: Device, threads: int, folder: Path) -> None:
        self._plan, self._device, self._folder = plan, device, folder
        self.memory = DeviceMemory(
            device, Bounds(), lambda env: child_environment(os.environ, env, threads, limits_memory=True)
        )
        self.slot = Slot(self.memory)
        self.context_bytes, self.loads = 0, _Loads()
        self._begun = 0
        self._is_warm = False

    async def point(self, point: Mapping[str, Number]) -> Point:
        """Measure one point."""
        peak_bytes, run_ms = 0, 0.0
        for _ in range(self._plan.repeat):
            outcome = await self._run_warm(point, self._device.bytes_total)
            if outcome.verdict is not Verdict.COMPLETED:
                return Point(inputs=dict(point))
            if outcome.peak_bytes is None:
                raise AuditFailed(f"the peak of a process cannot be read on this system ({self._device.kind})")
            peak_bytes, run_ms = max(peak_bytes, outcome.peak_bytes), max(run_ms, outcome.run_ms)
        peak_bytes = await self._enough(point, peak_bytes)
        return Point(inputs=dict(point), peak_bytes=peak_bytes, run_ms=round(run_ms))

    async def load_peak(self, point: Mapping[str, Number], run_peak_bytes: int) -> int | None:
        """Return the most that loads held; in the slice of the smallest job a fresh child was seen to load."""
        peak_bytes = self.loads.peak_bytes
        if peak_bytes is None:
            return None
        for _ in range(SLICE_TRIES):
            await self.memory.empty()
            loads = self.loads.count
            await self._run(point, reserved(max(peak_bytes, run_peak_bytes)))
            if self.loads.count > loads:
                break
            peak_bytes = max(peak_bytes, run_peak_bytes) * 11 // 10  # it asked for more than it touched
        return min(peak_bytes, self._device.bytes_total)

    async def _enough(self, point: Mapping[str, Number], peak_bytes: int) -> int:
        """Return a peak whose slice is large enough: what was asked for and given back untouched is in no figure."""
        for _ in range(SLICE_TRIES):
            least_bytes = reserved(int(peak_bytes * (1 - WORST_ERROR)))  # where the line runs below the point
            if (await self._run_warm(point, least_bytes)).verdict is Verdict.COMPLETED:
                break
            peak_bytes = peak_bytes * 11 // 10
        return min(peak_bytes, self._device.bytes_total)

    async def _run_warm(self, point: Mapping[str, Number], slice_bytes: int) -> Outcome:
        """Run a point in a child that has run before."""
        if not self._is_warm:
            first = await self._run(self._plan.points[0], self._device.bytes_total)
            self._is_warm = first.verdict is Verdict.COMPLETED
        outcome = await self._run(point, slice_bytes)
        if outcome.verdict is not Verdict.COMPLETED:
            await self.memory.empty()  # what is left in a child that failed is in fragments
            self._is_warm = False
        return outcome

    async def _run(self, point: Mapping[str, Number], slice_bytes: int) -> Outcome:
        self._begun += 1
        scratch = self._folder / str(self._begun)
        scratch.mkdir()
        spec, log = self._plan.spec, scratch.with_suffix(".log")
        attempt = Attempt(
            f"audit-{self._begun}", 1, spec, {**self._plan.inputs, **point}, slice_bytes, scratch, log,
            Limits(spec.timeout_s, spec.silence_s),
        )  # fmt: skip
        sampling = asyncio.ensure_future(self._sample()) if self._device.is_gpu else None
        try:
            outcome = await self.slot.run(attempt, self.loads)
        finally:
            if sampling is not None:
                sampling.cancel()
        if outcome.verdict is Verdict.COMPLETED or outcome.code in OUT_OF_MEMORY:
            return outcome
        shown = ", ".join(f"{name}={value}" for name, value in point.items())
        raise AuditFailed(f"{shown or 'the run'}: {outcome.code}: {outcome.message}{_tail(log)}")

    async def _sample(self) -> None:
        """Look at a GPU often: what is in no allocator of torch's has no peak but what was seen."""
        while True:
            memory = self.slot.process_memory
            if isinstance(memory, GpuMemory):
                memory.sample()
                self.context_bytes = memory.context_bytes
            await asyncio.sleep(SAMPLE_S)


def _tail(log: Path) -> str:
    try:
        said = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f"\n{said}" if said else ""

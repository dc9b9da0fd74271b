"""What the supervisor's half of a slot costs without any store: a round trip of an empty job, the gap between two jobs
whose starts are accepted, and what 20,000 reports of progress a second cost the job that makes them.

Against a bare ping over a socketpair: the same lengths and clocks, one frame there, one back, nothing else. What the
store adds to the gap is in `slot_gap`.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import orjson
import uvloop

from benchmarks.bare_worker import Slot as BareSlot
from benchmarks.figures import Row, Spread, cut_up, low, quantile, spread
from benchmarks.rig import PIPELINES
from contracts.model_spec import ModelSpec
from contracts.models import load
from services.gpu_worker.devices import claim_devices, parse_devices, release_devices
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.process.frames import Telemetry
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.slots.attempt import Attempt, Loaded
from services.gpu_worker.slots.outcome import Verdict
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.slots.watchdog import Limits

ROUNDS, JOBS, WARM_UP = 8, 200, 20
GAP_BAR_MS = 0.3
CALLS_PER_S, STEPS, PIECES = 20_000, 1_000, 20
SLOWER_BAR = 1.05
DEVICE_BYTES = 256 << 20

Stamp = dict[str, Any]


class _Nobody:
    """Listens to an attempt for no one."""

    def on_load_started(self) -> None: ...
    def on_loaded(self, loaded: Loaded) -> None: ...
    def on_telemetry(self, frame: Telemetry) -> None: ...


class Ours:
    """One slot with a real child."""

    def __init__(self, memory: DeviceMemory, folder: Path) -> None:
        self._slot, self._folder, self._models, self._made = Slot(memory), folder, load(PIPELINES), 0

    async def run(self, name: str, **inputs: object) -> Stamp:
        """Run one job and return its result."""
        return await self._finish(self.attempt(name, **inputs))

    async def round(self, jobs: int) -> tuple[list[float], list[float]]:
        """Run jobs whose starts are accepted, one after another; returns round trips and gaps in milliseconds."""
        attempts, trips, stamps = [self.attempt("stamp", ms=0) for _ in range(jobs)], [], []
        for attempt in attempts:
            begun_s = time.perf_counter()
            stamps.append(await self._finish(attempt))
            trips.append((time.perf_counter() - begun_s) * 1000)
        return trips, _gaps(stamps)

    def attempt(self, name: str, **inputs: object) -> Attempt:
        """Return what the slot runs."""
        spec, self._made = _found(self._models.find(name)), self._made + 1
        scratch = self._folder / str(self._made)
        scratch.mkdir()
        limits = Limits(spec.timeout_s, spec.silence_s)
        return Attempt(f"job_{self._made}", 1, spec, inputs, 1 << 20, scratch, scratch.with_suffix(".log"), limits)

    async def _finish(self, attempt: Attempt) -> Stamp:
        outcome = await self._slot.run(attempt, _Nobody())
        assert outcome.verdict is Verdict.COMPLETED, outcome
        return dict(outcome.result or {})


def measure() -> list[Row]:
    """Interleave rounds of pings and jobs, then let one job report."""
    return uvloop.run(_measure())


async def _measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as name:
        folder = Path(name)
        devices = await asyncio.to_thread(claim_devices, parse_devices("cpu", DEVICE_BYTES), "bench", folder / "locks")
        memory = DeviceMemory(devices[0], Bounds(), _environment)
        try:
            ours = Ours(memory, folder)
            return [*await _trips(ours), await _reports(ours)]
        finally:
            await memory.close()
            release_devices(devices)


async def _trips(ours: Ours) -> list[Row]:
    bare = await BareSlot.open()
    await ours.round(WARM_UP)
    trips, gaps, bare_trips, bare_gaps = (list[list[float]]() for _ in range(4))
    for _ in range(ROUNDS):
        for into, found in zip((trips, gaps), await ours.round(JOBS), strict=True):
            into.append(found)
        for into, found in zip((bare_trips, bare_gaps), await _bare_round(bare, JOBS), strict=True):
            into.append(found)
    worst = quantile([gap for each in gaps for gap in each], 0.99)
    means = spread([mean(each) for each in gaps])
    return [
        Row(
            "empty job, from the supervisor to its child and back, p50",
            low(spread([median(each) for each in trips]), " ms", 3),
            low(spread([median(each) for each in bare_trips]), " ms", 3) + " bare ping over a socketpair",
            low(spread([median(a) / median(b) for a, b in zip(trips, bare_trips, strict=True)])),
        ),
        Row(
            f"gap between two jobs of a child whose starts are accepted, mean (p99 {cut_up(worst)} ms)",
            low(means, " ms", 3),
            low(spread([mean(each) for each in bare_gaps]), " ms", 3) + " bare ping over a socketpair",
            low(spread([mean(a) / mean(b) for a, b in zip(gaps, bare_gaps, strict=True)])),
            f"at most {GAP_BAR_MS} ms",
            means.mid <= GAP_BAR_MS,
        ),
    ]


async def _reports(ours: Ours) -> Row:
    stamp = await ours.run("busy", steps=STEPS, step_us=1e6 / CALLS_PER_S, pieces=PIECES)
    wall, cpu = (_slower(stamp[told], stamp[plain]) for told, plain in (("toldS", "plainS"), ("toldCpuS", "plainCpuS")))
    per_s = STEPS / median(stamp["toldS"])
    return Row(
        f"time of a job that reports progress {per_s:,.0f} times a second (CPU time of its thread: {low(cpu, '', 3)})",
        low(wall, "", 3), "1 without reports", low(wall, "", 3), f"at most {SLOWER_BAR}", wall.mid <= SLOWER_BAR,
    )  # fmt: skip


def _slower(told: Sequence[float], plain: Sequence[float]) -> Spread:
    return spread([a / b for a, b in zip(told, plain, strict=True)])


async def _bare_round(bare: BareSlot, jobs: int) -> tuple[list[float], list[float]]:
    trips, stamps = [], []
    for _ in range(jobs):
        begun_s = time.perf_counter()
        answer = await bare.run(0)
        trips.append((time.perf_counter() - begun_s) * 1000)
        stamps.append(orjson.loads(answer))
    return trips, _gaps(stamps)


def _gaps(stamps: Sequence[Stamp]) -> list[float]:
    return [(b["beganNs"] - a["endedNs"]) / 1e6 for a, b in pairwise(stamps)]


def _environment(model: Any) -> dict[str, str]:
    return child_environment(os.environ, model, threads=1, limits_memory=True)


def _found(spec: ModelSpec | None) -> ModelSpec:
    assert spec is not None
    return spec

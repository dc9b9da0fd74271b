"""One short look at a card: `python -m tests.gpu.check` on a machine with one NVIDIA GPU, torch and onnxruntime-gpu.

Everything that is otherwise tested with stand-ins: slices, figures, running out of memory, ends of processes. Prints a
table; exit code 1 if a line of it is red, 77 with the reason where there is no card. Takes at most 4 minutes.
"""

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import Any
from unittest import mock

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device, claim_devices, parse_devices, release_devices
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.process.frames import Progress
from services.gpu_worker.slots import slot as slot_module
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict
from services.gpu_worker.this_host import this_host
from tests.gpu_worker import rig as rigs

FOLDER = Path(__file__).parent
NETWORK = FOLDER.parents[1] / "pipelines" / "scenes" / "weights" / "decoder.onnx"
LIMIT_S = 240.0
SKIPPED = 77
GIB, MIB = 1 << 30, 1 << 20
SWAPS = 50
BOUNDS = replace(rigs.QUICK, load_s=90.0, back_s=10.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    check: str
    ok: bool
    figure: str
    took_s: float


class Wrong(Exception):
    """A figure is not what it has to be."""


class Bench:
    """The card, and slots on it."""

    def __init__(self, device: Device, gpus: Gpus, folder: Path) -> None:
        assert device.gauge is not None
        self.device, self.gpus, self.folder, self.gauge = device, gpus, folder, device.gauge

    @contextlib.asynccontextmanager
    async def slot(self, **more: Any) -> AsyncIterator[rigs.Rig]:
        """Open a slot; each has a folder of its own. At its end all children are gone and their bytes back."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        async with rigs.rig(folder, BOUNDS, device=self.device, free_bytes=self.gauge.free_bytes, **more) as rig:
            yield rig

    def free_bytes(self) -> int:
        free = self.gauge.free_bytes()
        must(free is not None, "NVML tells no free bytes")
        return free or 0

    def holds(self, pid: int) -> int:
        """Return what NVML says that a child holds."""
        held = self.gauge.bytes_of(pid)
        must(held is not None, "NVML does not name our processes: in a container, run it with the host's pids")
        return held or 0


def model(name: str, file: str, **env: str) -> ModelSpec:
    return replace(rigs.model("echo"), name=name, entry=FOLDER / file, env=env, timeout_s=60.0)


TORCH = model("on-torch", "on_torch.py")


async def run(rig: rigs.Rig, spec: ModelSpec, budget_bytes: int, **inputs: Any) -> Outcome:
    return await rig.slot.run(rig.attempt(spec, budget_bytes // MIB, **inputs), rigs.Recorder())


def must(true: bool, text: str) -> None:
    if not true:
        raise Wrong(text)


def completed(outcome: Outcome) -> dict[str, Any]:
    must(outcome.verdict is Verdict.COMPLETED, f"{outcome.code}: {outcome.message}")
    return dict(outcome.result or {})


async def slices(bench: Bench) -> str:
    """Torch fails beyond the slice, and what NVML sees stays within it."""
    async with bench.slot() as rig:
        outcome = await run(rig, TORCH, 4 * GIB, do="take", bytes=3 * GIB)
        inside, held = completed(outcome), outcome.peak_bytes or 0
        must(0 < bench.holds(inside["pid"]) <= held, "NVML sees more than the peak")
        beyond = await run(rig, TORCH, 4 * GIB, do="take", bytes=4 * GIB)
        must(beyond.code == "out_of_memory", f"4 GiB in a slice of 4 GiB ended with {beyond.code or 'success'}")
        wider = completed(await run(rig, TORCH, 8 * GIB, do="take", bytes=6 * GIB))
        must(wider["pid"] == inside["pid"], "the slice of a warm child did not grow")
        narrow = await run(rig, TORCH, 4 * GIB, do="take", bytes=6 * GIB)
        must(narrow.code == "out_of_memory", f"6 GiB in a slice of 4 GiB ended with {narrow.code or 'success'}")
    must(3 * GIB < held <= 4 * GIB, f"a peak of {held / GIB:.2f} GiB in a slice of 4")
    return f"peak {held / GIB:.2f} GiB in a slice of 4; beyond it {beyond.code}"


async def figures(bench: Bench) -> str:
    """Reserved bytes and NVML differ by a context; the peak of the outcome holds both."""
    async with bench.slot() as rig:
        outcome = await run(rig, TORCH, 4 * GIB, do="take", bytes=2 * GIB)
        told = completed(outcome)
        context, peak = bench.gauge.context_bytes, outcome.peak_bytes or 0
    must(50 * MIB <= context <= 1500 * MIB, f"a context of {context // MIB} MiB")
    off = abs(peak - told["reserved"] - context) / peak if peak else 1.0
    must(
        off < 0.03, f"peak {peak / GIB:.2f} GiB, reserved {told['reserved'] / GIB:.2f} and context {context / GIB:.2f}"
    )
    return f"context {context // MIB} MiB, peak {peak / GIB:.3f} GiB, {off:.1%} off reserved and context"


async def recovery(bench: Bench) -> str:
    """Field case 64: ten times too much, then most of it, in one process."""
    # A child that ran out twice is ended on purpose; here it is to be seen that it need not be.
    with mock.patch.object(slot_module, "MOST_OOMS", 100):
        return await _ten_rounds(bench)


async def _ten_rounds(bench: Bench) -> str:
    async with bench.slot() as rig:
        room = min(20 * GIB, bench.free_bytes() - 2 * GIB)
        pids, left = set(), set()
        for _ in range(10):
            failed = await run(rig, TORCH, room, do="take", bytes=room * 12 // 10)
            must(failed.code == "out_of_memory", f"120 % ended with {failed.code or 'success'}")
            told = completed(await run(rig, TORCH, room, do="take", bytes=room * 7 // 10))
            pids.add(told["pid"])
            left.add(told["left"])
    must(len(pids) == 1, f"{len(pids)} processes")
    must(max(left) - min(left) <= MIB, f"allocated after each round: {sorted(left)}")
    return f"10 rounds of 120 % and 70 % of {room / GIB:.0f} GiB in one process; {max(left)} bytes left after each"


async def after_kill(bench: Bench) -> str:
    """Field case 60: a job that ignores its cancel is killed; its bytes are there for the next one at once."""
    before = bench.free_bytes()
    size = before * 6 // 10
    async with bench.slot() as rig:
        attempt = rig.attempt(TORCH, (size + 2 * GIB) // MIB, do="hold", bytes=size)
        recorder, task = rig.begin(attempt)
        saw = asyncio.ensure_future(recorder.saw(Progress))
        await asyncio.wait([saw, task], return_when=asyncio.FIRST_COMPLETED)
        must(not task.done(), f"it ended by itself: {task.result().message if task.done() else ''}")
        begun = time.monotonic()
        rig.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        must((await task).verdict is Verdict.CANCELLED, "the cancel did not end it")
        gone_s = time.monotonic() - begun
        completed(await run(rig, TORCH, size + 2 * GIB, do="take", bytes=size))
    after = bench.free_bytes()
    must(abs(after - before) <= before // 20, f"free before {before / GIB:.1f} GiB, after {after / GIB:.1f}")
    return f"60 % of the card, killed in {gone_s:.1f} s, taken again; free {after / before:.1%} of before"


async def device_assert(bench: Bench) -> str:
    """A sticky error ends the child; the next job has another one."""
    async with bench.slot() as rig:
        first = completed(await run(rig, TORCH, 2 * GIB, do="take", bytes=MIB))
        broken = await run(rig, TORCH, 2 * GIB, do="assert")
        must(broken.verdict is Verdict.FAILED, "an index beyond the end went unseen")
        then = completed(await run(rig, TORCH, 2 * GIB, do="take", bytes=MIB))
    must(broken.code == "child_crashed", f"the code is {broken.code}")
    must(then["pid"] != first["pid"], "the broken child ran the next job")
    return f"{broken.code}; the next job ran in another process"


async def foreign(bench: Bench) -> str:
    """Field case 70: memory of a program that is not ours is seen, ours is not counted, and its end is seen, too."""
    code = f"import torch; x = torch.ones({2 * GIB}, dtype=torch.uint8, device='cuda'); print(1, flush=True); input()"
    async with bench.slot() as rig:
        completed(await run(rig, TORCH, 4 * GIB, do="take", bytes=GIB))

        def seen() -> int:
            return bench.gauge.foreign_bytes(bench.gauge.read(), rig.memory.ledger.held_bytes) or 0

        before, pipe = seen(), subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as other:  # noqa: ASYNC220
            assert other.stdout is not None
            await asyncio.to_thread(other.stdout.readline)
            during = seen()
            other.communicate(b"\n")
        await rigs.eventually(lambda: seen() < before + 256 * MIB, "its bytes are back", within_s=5)
    must(2 * GIB <= during - before <= 4 * GIB, f"{(during - before) / GIB:.2f} GiB were seen of 2 and a context")
    return f"{(during - before) / GIB:.2f} GiB seen of 2 GiB and a context; ours beside it not counted"


async def onnx(bench: Bench) -> str:
    """Field case 66: a session runs on the card, fails beyond its limit, and grows with its slice."""
    spec = model("on-onnx", "on_onnx.py", NETWORK=str(NETWORK))
    async with bench.slot() as rig:
        small = completed(await run(rig, spec, 2 * GIB, pictures=8))
        must(small["provider"] == "CUDAExecutionProvider", f"it runs on {small['provider']}")
        large = await run(rig, spec, 2 * GIB, pictures=16_384)
        must(large.code == "out_of_memory", f"16,384 pictures in 2 GiB ended with {large.code or 'success'}")
        again = completed(await run(rig, spec, 2 * GIB, pictures=8))
        held = bench.holds(rig.slot.child_pid or 0)
    must(held <= 2 * GIB + 256 * MIB, f"NVML sees {held / GIB:.2f} GiB in a slice of 2")
    must(again["pictures"] == 8, "it did not recover")
    return f"{small['provider']}, 16,384 pictures {large.code}, then well again; NVML {held / GIB:.2f} GiB of 2"


async def swaps(bench: Bench) -> str:
    """Field case 65: two models that cannot be resident together, in turn."""
    size = bench.free_bytes() * 6 // 10
    pair = [model(name, "on_driver.py", BYTES=str(size)) for name in ("swap-a", "swap-b")]
    free, rss = [], []
    async with bench.slot() as rig:
        begun = time.monotonic()
        for number in range(SWAPS):
            completed(await run(rig, pair[number % 2], size + GIB))
            free.append(bench.free_bytes())
            rss.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
        each_s = (time.monotonic() - begun) / SWAPS
    lost = free[-1] - free[1]
    must(abs(lost) <= max(free[1] // 20, 64 * MIB), f"free after 2: {free[1]}, after {SWAPS}: {free[-1]}")
    must(rss[-1] - rss[1] < 200 * MIB, f"the supervisor grew by {(rss[-1] - rss[1]) // MIB} MiB")
    return f"{SWAPS} swaps of {size / GIB:.0f} GiB, {each_s:.2f} s each; free then {lost / MIB:+.0f} MiB"


CHECKS: tuple[tuple[str, Callable[[Bench], Awaitable[str]]], ...] = (
    ("slice enforcement", slices),
    ("reserved against NVML", figures),
    ("out of memory and back", recovery),
    ("bytes back after a kill", after_kill),
    ("device-side assert", device_assert),
    ("foreign process", foreign),
    ("onnxruntime's limit", onnx),
    (f"{SWAPS} swaps of two models", swaps),
)


def why_not(gpus: Gpus) -> str:
    """Return why it cannot be run here; empty if it can."""
    if not any(gpu.kind == "cuda" for gpu in gpus.found.gpus):
        return next((text for text in gpus.found.why_not if text.startswith("cuda")), "no NVIDIA GPU")
    missing = [name for name in ("torch", "onnxruntime") if util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


async def measure(bench: Bench) -> list[Line]:
    """Run all checks; one that fails hides no other."""
    lines, ends_s = [], time.monotonic() + LIMIT_S
    for name, check in CHECKS:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(max(1.0, ends_s - begun)):
                figure, ok = await check(bench), True
        except TimeoutError:
            figure, ok = f"not done within the {LIMIT_S:.0f} s of all", False
        except Exception as error:
            figure, ok = f"{type(error).__name__ if not isinstance(error, Wrong) else 'wrong'}: {error}", False
        lines.append(Line(name, ok, figure, time.monotonic() - begun))
        print(f"{'ok' if ok else 'RED':<4}{name:<26}{lines[-1].took_s:6.1f} s  {figure}", flush=True)
    return lines


def main() -> int:
    """Claim the first card and look at it."""
    gpus = Gpus(os.environ)
    reason = why_not(gpus)
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    host = this_host(gpus.found)
    devices = claim_devices(parse_devices("cuda", host.memory_bytes, gpus.found)[:1], host.name, host.lock_dir, gpus)
    try:
        print(f"{devices[0].model}, driver {devices[0].driver}, {devices[0].bytes_total / GIB:.1f} GiB", flush=True)
        with tempfile.TemporaryDirectory(prefix="headrace-gpu-") as folder:
            lines = asyncio.run(measure(Bench(devices[0], gpus, Path(folder))))
    finally:
        release_devices(devices)
    return 0 if all(line.ok for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())

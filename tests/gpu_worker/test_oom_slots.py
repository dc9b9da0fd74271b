"""Running out of memory on one slot: what becomes of the child, of the slot, and of the next job."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.model_spec import ModelSpec
from services.gpu_worker.child import self_test as probe
from services.gpu_worker.child.device import Device
from services.gpu_worker.child.memory_errors import is_oom
from services.gpu_worker.process.memory import SUPPORTED
from services.gpu_worker.residency import self_test
from services.gpu_worker.slots.outcome import Outcome, Verdict
from tests.gpu_worker.memory_pressure import TAKES, Crowd
from tests.gpu_worker.rig import PATIENCE_S, Recorder, Rig, eventually, model, rig

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="the kernel limits each child on Linux only")
MIB = 1 << 20


def taker(folder: Path, **env: str) -> ModelSpec:
    entry = folder / "taker.py"
    entry.write_text(TAKES)
    return replace(model("noop"), name="taker", entry=entry, env=env)


async def run(own: Rig, spec: ModelSpec, budget_mib: int = 100, *, alone: bool = False, **inputs: object) -> Outcome:
    attempt = replace(own.attempt(spec, budget_mib, **inputs), alone=alone)
    return await asyncio.wait_for(own.slot.run(attempt, Recorder()), PATIENCE_S)


async def test_a_batch_that_fitted_fits_again_after_a_larger_one_ran_out_of_memory(tmp_path: Path) -> None:
    """Field case 70: a batch of 20 is done, one of 30 runs out of memory, 20 again are done, by the same child."""
    ends = []
    async with rig(tmp_path, kind="sim", device_mib=100) as own:
        spec = taker(tmp_path, WITH="numpy")
        for size in (20, 30, 20, 30, 20):
            outcome = await run(own, spec, mib=[size * 4])
            ends.append((size, outcome.code, outcome.result and outcome.result["pid"]))
    pid = ends[0][2]
    assert pid is not None
    assert ends[:3] == [(20, None, pid), (30, "out_of_memory", None), (20, None, pid)]
    assert [(size, code) for size, code, _ in ends[3:]] == [(30, "out_of_memory"), (20, None)]
    assert ends[4][2] not in (None, pid)  # twice, and it is not trusted any more


@pytest.mark.parametrize("library", ["python", "numpy", "torch"])
async def test_ten_rounds_of_too_much_and_then_a_lot_leave_nothing_behind(tmp_path: Path, library: str) -> None:
    """Field case 64: 120 % fails, 70 % succeeds, ten times over; the traceback keeps nothing alive."""
    if library == "torch":
        pytest.importorskip("torch")
    spec = taker(tmp_path, WITH=library)
    async with rig(tmp_path, kind="sim", device_mib=400) as own:
        pids, rounds, used = set(), 10 if library == "numpy" else 2, []
        for _ in range(rounds):
            large = await run(own, spec, 200, mib=[240])
            small = await run(own, spec, 200, mib=[140])
            assert (large.code, small.verdict) == ("out_of_memory", Verdict.COMPLETED)
            pids.add((small.result or {})["pid"])
            used.append(own.memory.ledger.held_bytes)
        # One that has run out twice is replaced, for what it cannot give back.
        assert len(pids) == rounds // 2 + 1
        assert max(used) - min(used) <= 8 * MIB


async def test_what_it_asked_for_is_in_the_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path, kind="sim") as own:
        ran = await run(own, taker(tmp_path, WITH="numpy"), mib=[512])
        loaded = await run(own, taker(tmp_path, WITH="numpy", LOAD_MIB="256"), mib=[1])
    assert (ran.code, dict(ran.memory or {})) == ("out_of_memory", {"requested": 512 * MIB})
    assert (loaded.code, dict(loaded.memory or {})) == ("out_of_memory", {"requested": 256 * MIB})


@pytest.mark.parametrize(
    ("text", "code", "counts"),
    [
        ("CUDA error: device-side assert triggered", "child_crashed", True),
        ("HIP error: an illegal memory access was encountered", "child_crashed", True),
        ("CUDA error: uncorrectable ECC error encountered", "device_unavailable", False),
    ],
)
async def test_a_child_that_is_lost_on_its_device_is_replaced_at_once(
    tmp_path: Path, text: str, code: str, counts: bool
) -> None:
    spec = taker(tmp_path)
    async with rig(tmp_path, kind="sim") as own:
        before = await run(own, spec, mib=[1])
        lost = await run(own, spec, mib=[1], text=text)
        assert own.slot.child_pid is None
        after = await run(own, spec, mib=[1])
    assert (lost.code, lost.retryable, lost.killed_child) == (code, True, counts)
    assert (before.result or {})["pid"] != (after.result or {})["pid"]


async def test_a_kill_by_the_kernel_for_want_of_host_memory_has_its_own_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 44: told from somebody's kill by the kernel's own count, and from a device's out-of-memory by both."""
    async with rig(tmp_path) as own:
        killed = await own.run("crash", how="SIGKILL")
        monkeypatch.setattr("services.gpu_worker.slots.one_pass.oom_kills", lambda: 1 << 40)
        struck = await own.run("crash", how="SIGKILL")
    assert (killed.code, struck.code) == ("killed", "host_out_of_memory")
    assert killed.killed_child
    assert struck.killed_child


async def test_alone_means_a_fresh_child_and_the_whole_device(tmp_path: Path) -> None:
    """Field case 71: what is too much beside others fits on an empty device, and others do not notice."""
    spec, other = taker(tmp_path), replace(taker(tmp_path), name="other")
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        first = await run(own, spec, 60, mib=[20])
        await run(own, other, 60, mib=[20])
        failed = await run(own, spec, 60, mib=[150])
        heavy = await run(own, spec, 0, alone=True, mib=[150])
        assert (failed.code, heavy.verdict) == ("out_of_memory", Verdict.COMPLETED)
        assert (heavy.result or {})["pid"] != (first.result or {})["pid"]
        assert heavy.peak_bytes is not None
        assert heavy.peak_bytes >= 149 * MIB
        for _ in range(5):
            assert (await run(own, other, 60, mib=[20])).verdict is Verdict.COMPLETED


async def test_three_in_a_row_take_the_slot_out_of_service_until_its_device_has_passed(
    tmp_path: Path, crowded: Crowd
) -> None:
    """Field case 63: as long as somebody else has the memory the slot stays out; then it comes back by itself."""
    spec = taker(tmp_path)
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        assert (await run(own, spec, mib=[80])).verdict is Verdict.COMPLETED
        crowded("sim-test-0-0", 20)
        for number in range(3):
            assert not own.slot.quarantined, number
            assert (await run(own, spec, mib=[80])).code == "out_of_memory"
        assert own.slot.quarantined
        assert (own.slot.state, own.slot.waits_for) == ("quarantined", "out of memory 3 times in a row")
        await crowded.tests_go_on()
        assert own.slot.quarantined
        assert own.memory.models == ()

        crowded("sim-test-0-0", None)
        await eventually(lambda: not own.slot.quarantined, "the device has passed")
        assert own.memory.ledger.held_bytes == 0
        assert (await run(own, spec, mib=[80])).verdict is Verdict.COMPLETED


async def test_out_of_memory_in_load_counts_as_well(tmp_path: Path) -> None:
    spec = taker(tmp_path, LOAD_MIB="150")
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        for _ in range(3):
            assert (await run(own, spec, mib=[1])).code == "out_of_memory"
        assert own.slot.quarantined
        await eventually(lambda: not own.slot.quarantined, "nothing is wrong with the device")
        assert (await run(own, spec, 0, alone=True, mib=[1])).verdict is Verdict.COMPLETED


class Driver:
    """A GPU's driver that refuses one of its calls, and notes all of them."""

    def __init__(self, refuses: str = "", status: int = 0) -> None:
        self.calls: list[str] = []
        self._refuses, self._status = refuses, status

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: object) -> int:
            self.calls.append(name)
            return self._status if name == self._refuses else 0

        return call


@pytest.mark.parametrize(
    ("kind", "takes", "gives"), [("cuda", "cuMemAlloc_v2", "cuMemFree_v2"), ("rocm", "hipMalloc", "hipFree")]
)
def test_on_a_gpu_the_driver_is_asked_for_the_bytes(
    monkeypatch: pytest.MonkeyPatch, kind: str, takes: str, gives: str
) -> None:
    """With a driver that is made up: which calls, in which order, and what a refusal is called."""
    for driver, says in (
        (Driver(), None),
        (Driver(takes, 2), "out of memory"),
        (Driver(takes, 700), "700"),
    ):
        monkeypatch.setattr("ctypes.CDLL", lambda name, driver=driver: driver)
        device = Device(kind, 0, 1000 * MIB, 100 * MIB)
        if says is None:
            probe.load(device, None)
            assert driver.calls[-2:] == [takes, gives]
            continue
        with pytest.raises(RuntimeError, match=says) as raised:
            probe.load(device, None)
        assert is_oom(raised.value) is (says == "out of memory")


async def test_a_slot_that_is_back_is_on_probation_until_a_job_completes(tmp_path: Path, crowded: Crowd) -> None:
    spec = taker(tmp_path)
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        for _ in range(3):
            await run(own, spec, mib=[180])
        await eventually(lambda: not own.slot.quarantined, "nothing is wrong with the device")
        await run(own, spec, mib=[180])
        assert own.slot.quarantined
        await eventually(lambda: not own.slot.quarantined, "still nothing is wrong with it")
        await run(own, spec, mib=[10])
        for _ in range(2):
            await run(own, spec, mib=[180])
        assert not own.slot.quarantined


async def test_whether_a_job_alone_had_the_whole_device_is_found_out(tmp_path: Path, crowded: Crowd) -> None:
    spec = taker(tmp_path)
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        assert (await run(own, spec, 0, alone=True, mib=[300])).code == "out_of_memory"
        assert await own.slot.gave_all()
        assert not own.slot.quarantined

        own.memory.set_foreign_bytes(50 * MIB)
        assert (await run(own, spec, 0, alone=True, mib=[300])).code == "out_of_memory"
        assert not await own.slot.gave_all()  # as is known
        own.memory.set_foreign_bytes(0)

        crowded("sim-test-0-0", 20)
        assert (await run(own, spec, 0, alone=True, mib=[100])).code == "out_of_memory"
        assert not await own.slot.gave_all()  # as a test has shown
        assert own.slot.quarantined


async def test_the_test_of_a_device_waits_for_what_runs_there_and_leaves_nothing(tmp_path: Path) -> None:
    spec = taker(tmp_path)
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        beside = own.beside()
        assert (await run(own, spec, mib=[10])).verdict is Verdict.COMPLETED
        results = await asyncio.gather(
            self_test.passes(own.memory), run(own, spec, mib=[10]), run(beside, spec, mib=[10]),
            self_test.passes(own.memory),
        )  # fmt: skip
        assert (results[0], results[3]) == (True, True)
        assert [getattr(result, "verdict", None) for result in results[1:3]] == [Verdict.COMPLETED] * 2
        assert not any("self-test" in str(each["model"]) for each in own.memory.children.describe())


async def test_an_arena_that_keeps_its_peak_is_measured_and_makes_room_for_another_model(tmp_path: Path) -> None:
    """Field case 66: a large input raises onnxruntime's arena for good; the next model gets that room all the same."""
    pytest.importorskip("onnxruntime")
    scenes = Path(__file__).parents[2] / "pipelines/scenes"
    entry = tmp_path / "arena.py"
    entry.write_text(ARENA)
    arena, other = replace(model("noop"), name="arena", entry=entry, env={"SCENES": str(scenes)}), taker(tmp_path)
    async with rig(tmp_path, kind="sim", device_mib=300) as own:
        assert (await run(own, arena, 250, n=1)).verdict is Verdict.COMPLETED
        small_bytes = own.memory.ledger.held_bytes
        assert (await run(own, arena, 250, n=32)).verdict is Verdict.COMPLETED
        large_bytes = own.memory.ledger.held_bytes
        assert (await run(own, arena, 250, n=1)).verdict is Verdict.COMPLETED
        kept_bytes = own.memory.ledger.held_bytes
        assert kept_bytes >= large_bytes - 4 * MIB > small_bytes + 8 * MIB  # measured, not what was declared
        rest = await run(own, other, 290, mib=[280])
        assert rest.verdict is Verdict.COMPLETED
        assert own.memory.models == ("taker@1",)


ARENA = """
import os, sys
sys.path.insert(0, os.environ["SCENES"])
import numpy, onnxruntime
def load(device, prepared):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = os.path.join(os.environ["SCENES"], "weights", "denoiser.onnx")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
def run(model, inputs, job):
    shapes = {each.name: [inputs["n"], *each.shape[1:]] for each in model.get_inputs()}
    model.run(None, {name: numpy.zeros(shape, "f") for name, shape in shapes.items()})
"""


async def test_small_after_large_after_small_is_never_hurt(tmp_path: Path) -> None:
    """Field case 72 in small: sizes at random in one child, then one near the limit."""
    spec = taker(tmp_path, WITH="numpy")
    sizes = [int.from_bytes(os.urandom(1), "big") % 150 + 1 for _ in range(30)]
    async with rig(tmp_path, kind="sim", device_mib=200) as own:
        for mib in [*sizes, 190]:
            assert (await run(own, spec, 200, mib=[mib])).verdict is Verdict.COMPLETED, sizes

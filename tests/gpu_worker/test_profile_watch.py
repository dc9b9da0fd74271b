"""What jobs take beside what is known of them: told once, in the log, as soon as it is more."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.model_spec import ModelSpec
from contracts.profiles import Machine, ModelProfiles, Point, make_profile, reserved
from contracts.store import Store
from services.gpu_worker.devices import Device
from services.gpu_worker.machine import installed, machine_of
from services.gpu_worker.process.memory import SUPPORTED
from services.gpu_worker.profile_watch import MOST_BUCKETS, ProfileWatch, Seen
from tests.gpu_worker.rig import MODELS, model
from tests.gpu_worker.stage import POOL, Staff, staff

MIB = 1 << 20
DEVICE = Device("sim-test-0-0", "sim", 0, 1 << 30, lock_fd=-1, lock_inode=0)


def profiled(spec: ModelSpec, peak_bytes: int, **machine: Any) -> ModelSpec:
    """Return the model with a profile that says so, whatever is asked."""
    here = machine_of(DEVICE, spec, MODELS.base, {})
    made = make_profile(here.model_copy(update=machine), [], [Point(peak_bytes=peak_bytes)], 1 << 30, 3)
    return replace(spec, profile=ModelProfiles(model=spec.reference, profiles=(made,)))


def saw(watch: ProfileWatch, spec: ModelSpec, peak_bytes: int, *, is_fresh: bool = True, **inputs: Any) -> Any:
    event = watch.saw(Seen(spec, inputs, peak_bytes, DEVICE, DEVICE.bytes_total, is_fresh))
    return None if event is None else (event.source, event.bucket, event.bytes)


def test_the_first_job_of_a_bucket_that_nobody_measured_is_told_and_then_only_more() -> None:
    watch, spec = ProfileWatch(), model("paced")  # its schema has an integer `steps`

    found = [saw(watch, spec, peak, steps=steps) for steps, peak in ((1, 1000), (1, 1050), (1, 1051), (1, 900), (2, 1))]

    assert found == [
        ("provisional", "steps=1", 1080), None, ("drift", "steps=1", reserved(1051)), None,
        ("provisional", "steps=2", 2),
    ]  # fmt: skip


def test_a_measured_model_is_told_of_only_when_it_takes_a_twentieth_more_and_with_its_context() -> None:
    watch, spec = ProfileWatch(), profiled(model("noop"), 1000)

    assert [saw(watch, spec, 3 + peak) for peak in (1050, 1051, 1100, 1200)] == [
        None, ("drift", None, 3 + reserved(1051)), None, ("drift", None, 3 + reserved(1200)),
    ]  # fmt: skip


def test_what_a_large_job_left_in_the_child_is_no_drift_of_a_small_one() -> None:
    """An arena keeps the peak of the largest input: field case 66."""
    spec = profiled(model("paced"), 1000)
    points = [Point(inputs={"steps": steps}, peak_bytes=1000 * steps) for steps in (1, 5, 9)]
    made = make_profile(machine_of(DEVICE, spec, MODELS.base, {}), ["steps"], points, 1 << 30)
    spec = replace(spec, profile=ModelProfiles(model=spec.reference, profiles=(made,)))
    watch = ProfileWatch()
    saw(watch, spec, 9000, steps=9)

    assert saw(watch, spec, 9000, steps=1, is_fresh=False) is None
    assert saw(watch, spec, 9500, steps=1, is_fresh=False) == ("drift", "steps=1", reserved(9500))
    assert saw(watch, spec, 9000, steps=2, is_fresh=True) == ("drift", "steps=2", reserved(9000))


def test_no_more_is_reserved_than_the_device_has_on_which_it_ran() -> None:
    assert saw(ProfileWatch(), model("noop"), (1 << 30) - 1) == ("provisional", None, 1 << 30)


def test_a_profile_of_another_kind_of_device_tells_nothing() -> None:
    assert saw(ProfileWatch(), profiled(model("noop"), 1000, kind="cuda"), 500) == ("provisional", None, 540)


def test_whatever_is_asked_there_is_an_end_to_what_is_told() -> None:
    watch, spec = ProfileWatch(), model("paced")

    told = [saw(watch, spec, 1000, steps=steps) for steps in range(MOST_BUCKETS + 500)]

    assert sum(one is not None for one in told) == MOST_BUCKETS + 1


async def run(desk: Staff, name: str, **inputs: Any) -> None:
    job_id = await desk.stage.admit(name, **inputs)
    await desk.stage.offer(job_id, desk.worker_id)
    assert str((await desk.stage.ended(job_id)).status) == "completed"


@pytest.mark.skipif(not SUPPORTED, reason="peaks of processes are read from /proc")
async def test_a_job_of_an_unknown_model_becomes_a_provisional_profile_in_the_log(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:256MiB") as desk:
        await run(desk, "oom", mib=40)
        told = await desk.stage.saw("model.profiled")
        await run(desk, "oom", mib=41)
        await run(desk, "oom", mib=60)
        raised = await desk.stage.saw("model.profiled", count=2)

    assert isinstance(told, ev.ModelProfiled)
    assert isinstance(raised, ev.ModelProfiled)
    assert (told.model, told.source, raised.source) == ("oom@1", "provisional", "drift")
    assert told.peak_bytes == pytest.approx(40 * MIB, abs=2 * MIB)
    assert raised.bytes == reserved(raised.peak_bytes or 0)
    assert raised.peak_bytes == pytest.approx(60 * MIB, abs=2 * MIB)
    assert [entry.type for entry in desk.stage.entries].count("model.profiled") == 2


@pytest.mark.skipif(not SUPPORTED, reason="peaks of processes are read from /proc")
async def test_production_beyond_the_profile_raises_it_by_an_event(store: Store, tmp_path: Path) -> None:
    async with staff(store, tmp_path, devices="sim:256MiB") as desk:
        measured = profiled(model("oom", vram_mib=None), 45 * MIB)
        desk.models.serve(tuple(measured if spec.name == "oom" else spec for spec in desk.models.specs))
        await run(desk, "oom", mib=44)
        await run(desk, "oom", mib=64)
        told = await desk.stage.saw("model.profiled")

    assert isinstance(told, ev.ModelProfiled)
    assert (told.source, told.bytes) == ("drift", 3 + reserved((told.peak_bytes or 0) - 3))
    assert told.peak_bytes == pytest.approx(64 * MIB, abs=2 * MIB)


async def test_a_worker_tells_what_its_profiles_are_worth_here(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike, unlike = profiled(model("noop"), 1), profiled(model("echo"), 1, revision="other")
    foreign = profiled(model("oom"), 1, kind="cuda")
    by_name = {spec.name: spec for spec in (alike, unlike, foreign)}
    specs = tuple(by_name.get(spec.name, spec) for spec in MODELS.specs)
    monkeypatch.setattr(MODELS, "specs", specs)

    async with staff(store, tmp_path, devices="sim:256MiB*2") as desk:
        fields = (await store.workers(POOL))[desk.worker_id]

    told = orjson.loads(fields["profiles"])
    assert set(told) == {"noop@1", "echo@1", "oom@1"}
    device = Machine(kind="cpu", name=machine_of(DEVICE, alike, MODELS.base, {}).name).device
    assert [(fit["device"], fit["unlike"]) for fit in told["noop@1"]] == [(device, [])]
    assert told["echo@1"][0]["unlike"][0].startswith("model's files ")
    assert told["oom@1"][0]["unlike"] == ["not measured on cpu"]


def test_an_interpreter_that_cannot_be_asked_has_no_runtimes(tmp_path: Path) -> None:
    assert installed(str(tmp_path / "python")) == {}
    assert installed(sys.executable) == installed("")


def test_a_model_is_another_when_its_files_are(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    for name in ("pipeline.py", "inputs.schema.json", "weights.bin"):
        (folder / name).write_bytes(b"12")
    spec = model("noop", entry=folder / "pipeline.py", inputs=folder / "inputs.schema.json")

    def revision() -> str:
        return machine_of(DEVICE, spec, tmp_path, {}).revision

    first = revision()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/pipeline.pyc").write_bytes(b"1")
    assert revision() == first
    (folder / "weights.bin").write_bytes(b"13")
    second = revision()
    (folder / "more.bin").write_bytes(b"")
    assert len({first, second, revision()}) == 3


def test_what_was_told_of_a_model_is_forgotten_when_it_is_measured_anew() -> None:
    """The scheduler forgets what drift had raised, too: else the same job would run out of memory, told to nobody."""
    watch = ProfileWatch()
    spec = profiled(model("noop"), 100)
    seen = Seen(spec, {}, 300, DEVICE, 1 << 30, is_fresh=True)
    assert watch.saw(seen) is not None
    assert watch.saw(seen) is None

    watch.forget(spec.reference)

    assert watch.saw(seen) is not None

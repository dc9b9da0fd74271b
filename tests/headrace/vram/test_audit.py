"""`headrace vram`: real children on simulated devices, whose memory the kernel limits."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from contracts import events as ev
from contracts.models import load
from contracts.profiles import Machine, ModelProfiles, Point, make_profile, predict, read_profiles, reserved
from contracts.store import Store
from contracts.wire import Entry
from headrace.cli import app
from headrace.exits import Exit
from headrace.vram.measuring import Measured, without_context
from headrace.vram.plot import draw
from headrace.vram.report import rows

MIB = 1 << 20
# Takes `at_first` once for good, `size x batch` MiB for as long as it runs.
SIZED = """
kept = []

def run(model, inputs, job):
    if inputs.get("fails"):
        print("the last words of the author")
        raise ValueError("no")
    if not kept:
        kept.append(bytearray(b"x") * (inputs.get("at_first", 0) << 20))
        burst = bytearray(b"x") * (3 * inputs.get("at_first", 0) << 20)
    block = bytearray(b"x") * (inputs["size"] * inputs.get("batch", 1) << 20)
"""
TOML = """
[models.sized]
entry = "sized/pipeline.py"
inputs = "sized/inputs.schema.json"
pools = ["default", "never"]
vram = { grid = { size = [8, 16, 24, 32] } }
"""
SCHEMA = {
    "type": "object",
    "required": ["prompt", "size"],
    "properties": {
        "prompt": {"type": "string", "minLength": 3, "examples": ["a prompt of the author"]},
        "size": {"type": "integer", "maximum": 4096},
        "batch": {"type": "integer"},
        "at_first": {"type": "integer"},
        "fails": {"type": "boolean"},
    },
}


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipelines file with one model, in a folder without a store."""
    folder = tmp_path / "sized"
    folder.mkdir()
    (folder / "pipeline.py").write_text(SIZED)
    (folder / "inputs.schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "pipelines.toml").write_text(TOML)
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path / "pipelines.toml"))
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.delenv("HEADRACE_REDIS__URL", raising=False)
    return tmp_path / "pipelines.toml"


def vram(*words: str) -> Result:
    return CliRunner().invoke(app, ["vram", *words])


def audit(*words: str, device: str = "sim:256MiB") -> dict[str, Any]:
    done = vram("audit", "sized", "--device", device, "--repeat", "1", "--json", *words)
    assert done.exit_code == Exit.OK, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_peaks_of_real_children_become_a_line_a_table_a_picture_and_a_profile(pipelines: Path) -> None:
    done = vram("audit", "sized", "--device", "sim:256MiB")
    assert done.exit_code == Exit.OK, done.output
    (profile,) = read_profiles((pipelines.parent / "profiles/sized@1.json").read_bytes()).profiles
    spec = load(pipelines).find("sized")

    assert [point.inputs for point in profile.points] == [{"size": size} for size in (8, 16, 24, 32)]
    for point in profile.points:
        assert point.peak_bytes == pytest.approx(point.inputs["size"] * MIB, abs=MIB)
    assert profile.weights_bytes is not None
    assert profile.weights_bytes < MIB  # there are none
    assert profile.fit.kind == "linear"
    assert profile.fit.worst_error < 0.05
    assert spec is not None
    assert spec.profile is not None
    assert predict(spec.profile.profiles[0], {"size": 48}).bytes == pytest.approx(48 * MIB * 1.08, rel=0.05)
    assert (pipelines.parent / "profiles/sized@1.png").read_bytes().startswith(b"\x89PNG")
    assert "concurrency" in done.stdout
    assert "use it within seconds" in done.stderr


def test_the_number_that_fits_is_exact_and_told_for_each_point(pipelines: Path) -> None:
    found = audit()

    for row in found["points"]:
        needed = row["reservedMib"]
        assert row["concurrency"] * needed <= 256 + 0.1 * row["concurrency"]
        assert (row["concurrency"] + 1) * needed > 256 - 0.1 * row["concurrency"]
    assert (found["reserveMib"], found["deviceMib"], found["told"]) == (0.0, 256.0, [])


def test_running_out_of_memory_is_a_point_and_what_is_larger_is_not_tried(pipelines: Path) -> None:
    found = audit("--grid", "size=16,32,512,1024", device="sim:128MiB")
    (profile,) = read_profiles((pipelines.parent / "profiles/sized@1.json").read_bytes()).profiles

    assert [row["peakMib"] is None for row in found["points"]] == [False, False, True]
    assert found["points"][2]["concurrency"] == 0
    assert found["skipped"] == [{"size": 1024}]
    assert predict(profile, {"size": 512}).least_bytes > 128 * MIB


def test_a_column_ends_at_its_first_failure_and_the_others_go_on_in_a_fresh_child(pipelines: Path) -> None:
    found = audit("--grid", "size=8,16,64", "--grid", "batch=1,4", device="sim:100MiB")

    peaks = {(row["size"], row["batch"]): row["peakMib"] for row in found["points"]}
    assert peaks[64, 4] is None
    assert [size * batch for size, batch in peaks] == [8, 16, 32, 64, 64, 256]
    for (size, batch), peak in peaks.items():
        assert peak is None or peak == pytest.approx(size * batch, abs=1)


def test_what_a_load_takes_for_a_moment_is_reserved_for_each_job_as_it_may_have_to_load(pipelines: Path) -> None:
    """A load that copies what it has read takes twice what it keeps: in a slice for its runs alone it would fail."""
    author = pipelines.parent / "sized/pipeline.py"
    author.write_text("def load(device, prepared):\n    bytearray(b'x') * (60 << 20)\n" + SIZED)
    found = audit("--grid", "size=8,80")
    (profile,) = read_profiles((pipelines.parent / "profiles/sized@1.json").read_bytes()).profiles

    assert profile.load_peak_bytes == pytest.approx(60 * MIB, abs=2 * MIB)
    assert profile.weights_bytes == pytest.approx(0, abs=2 * MIB)
    assert [row["peakMib"] for row in found["points"]] == [pytest.approx(8, abs=1), pytest.approx(80, abs=1)]
    assert predict(profile, {"size": 8}).bytes == reserved(profile.load_peak_bytes or 0)
    assert predict(profile, {"size": 80}).bytes == pytest.approx(80 * MIB * 1.08, rel=0.05)
    assert [row["concurrency"] for row in found["points"]] == [3, 2]


def test_what_only_the_first_run_of_a_child_takes_does_not_count(pipelines: Path) -> None:
    """Libraries allocate for good when they are used first: one run comes before those that count."""
    found = audit("--input", "at_first=10")

    for row in found["points"]:
        assert row["peakMib"] == pytest.approx(10 + row["size"], abs=1)


def test_what_a_process_holds_anyway_is_in_no_peak_and_counts_once_for_each_child() -> None:
    points = [Point(inputs={"size": 1}, peak_bytes=1_500), Point(inputs={"size": 2})]
    found = without_context(Measured(points, context_bytes=500))

    assert [point.peak_bytes for point in found.points] == [1_000, None]
    made = make_profile(Machine(kind="cuda"), ["size"], found.points, 10_000, found.context_bytes)
    (row, _) = rows(made, 10_000, 1_000)
    assert row["concurrency"] == (10_000 - 1_000) // (500 + 1_080) == 5
    assert predict(made, {"size": 1}).bytes == 500 + 1_080


def test_where_nothing_fits_there_is_no_profile(pipelines: Path) -> None:
    done = vram("audit", "sized", "--grid", "size=64,128", "--device", "sim:32MiB")

    assert done.exit_code == Exit.FAILED_CHECK
    assert "nothing fits: even size=64 runs out of 32 MiB" in done.stderr
    assert not (pipelines.parent / "profiles").exists()


def test_a_run_that_fails_otherwise_ends_the_audit_with_the_words_of_the_author(pipelines: Path) -> None:
    done = vram("audit", "sized", "--input", "fails=true", "--device", "sim:64MiB")

    assert done.exit_code == Exit.FAILED_CHECK
    assert "size=8: internal: " in done.stderr
    assert "the last words of the author" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("audit", "nothing"), Exit.NOT_FOUND, "no model 'nothing'; there are sized"),
        (("audit", "sized", "--grid", "size=9000"), Exit.USAGE, "/input/size must be 4096 or less"),
        (("audit", "sized", "--grid", "batch=2"), Exit.USAGE, "/input/size is required"),
        (("audit", "sized", "--prompt", "x"), Exit.USAGE, "/prompt must have at least 3 characters"),
        (("audit", "sized", "--device", "tpu"), Exit.USAGE, "device 'tpu'"),
        (("audit", "sized", "--pipelines", "/nowhere"), Exit.USAGE, "cannot be read"),
        (("audit", "sized", "--input", "size"), Exit.USAGE, "write a name and JSON"),
        (("show",), Exit.NOT_FOUND, "no profile of any model"),
        (("show", "sized"), Exit.NOT_FOUND, "`headrace vram audit` measures one"),
    ],
)
def test_what_cannot_be_done_says_so(pipelines: Path, words: tuple[str, ...], code: Exit, said: str) -> None:
    done = vram(*words)

    assert done.exit_code == code, done.output
    assert said in done.stderr


def test_another_audit_replaces_the_profile_of_its_device_and_a_broken_file(pipelines: Path) -> None:
    path = pipelines.parent / "profiles/sized@1.json"
    path.parent.mkdir()
    path.write_text("{broken")
    audit("--grid", "size=8")
    first = read_profiles(path.read_bytes()).profiles[0]
    foreign = first.model_copy(update={"machine": first.machine.model_copy(update={"kind": "cuda"})})
    path.write_text(ModelProfiles(model="sized@1", profiles=(first, foreign)).to_json())

    audit("--grid", "size=8,16")

    kinds = {profile.machine.kind: len(profile.points) for profile in read_profiles(path.read_bytes()).profiles}
    assert kinds == {"cpu": 2, "cuda": 1}


def test_show_prints_what_was_measured_and_warns_of_what_is_unlike_here(pipelines: Path) -> None:
    audit()
    alike = vram("show", "sized", "--device", "sim:1GiB")
    (pipelines.parent / "sized/pipeline.py").write_text(SIZED + "# changed\n")
    changed = vram("show")
    (document,) = json.loads(vram("show", "--json").stdout)["data"]

    assert alike.exit_code == changed.exit_code == Exit.OK
    assert "warning" not in alike.stderr
    assert "deviceMib          1024.0" in alike.stdout
    assert "warning: model's files" in changed.stderr
    assert "deviceMib          256.0" in changed.stdout
    assert document["unlike"][0].startswith("model's files")
    assert document["profile"]["points"][0]["inputs"] == {"size": 8}


def test_without_pillow_there_is_a_profile_and_a_word_about_it(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)

    done = vram("audit", "sized", "--grid", "size=8", "--device", "sim:64MiB")

    assert done.exit_code == Exit.OK
    assert "no plot: Pillow is not installed; pip install 'headrace[cpu]' has it" in done.stderr
    assert [path.name for path in (pipelines.parent / "profiles").iterdir()] == ["sized@1.json"]


def test_any_profile_can_be_drawn(pipelines: Path, tmp_path: Path) -> None:
    from tests.contracts.test_profiles import profile_of

    for number, peaks in enumerate(({1: 0}, {64: 5, 128: None}, {64: 100, 128: 100, 256: 900, 512: 950})):
        draw("a@1", profile_of(peaks), tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 1_000


async def _log(url: str) -> list[Entry]:
    store = Store(url)
    try:
        return [entry for entry in await store.tail("default", "0-0").read(100) if isinstance(entry, Entry)]
    finally:
        await store.aclose()


def test_the_pools_of_the_model_that_exist_are_told(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch, store_url: str
) -> None:
    async def open_pool() -> None:
        store = Store(store_url)
        await store.directory.open()
        await store.open_pool("default")
        await store.aclose()

    asyncio.run(open_pool())
    monkeypatch.setenv("HEADRACE_REDIS__URL", store_url)

    found = audit("--grid", "size=8,16")
    audit("--grid", "size=8", "--no-publish")

    (entry,) = asyncio.run(_log(store_url))
    event = entry.event()
    assert (found["told"], entry.subject) == (["default"], "sized@1")
    assert isinstance(event, ev.ModelProfiled)
    assert (event.model, event.source, event.bucket) == ("sized@1", "audit", None)
    assert event.bytes > (event.peak_bytes or 0) > 15 * MIB


def test_a_store_that_is_away_costs_the_news_and_not_the_profile(
    pipelines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS__URL", "redis://127.0.0.1:1")

    done = vram("audit", "sized", "--grid", "size=8", "--device", "sim:64MiB")

    assert done.exit_code == Exit.OK, done.output
    assert "no pool was told: " in done.stderr
    assert (pipelines.parent / "profiles/sized@1.json").exists()

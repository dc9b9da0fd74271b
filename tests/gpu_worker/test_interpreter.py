"""A model runs under the interpreter that pipelines.toml names: another environment or Python, nothing of ours."""

import ast
import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.model_spec import ModelSpec
from contracts.models import load
from services.gpu_worker.process.child_process import MAIN
from services.gpu_worker.process.frames import ArtifactFile, Milestone, Preview, Progress
from services.gpu_worker.slots.attempt import Member
from services.gpu_worker.slots.outcome import Stop, Verdict
from tests.gpu_worker.rig import PATIENCE_S, Recorder, model, rig

OLDEST, NEWEST = 8, 15  # Python 3.x that a child may run under, and a bound for the search
PIPELINE = """
import os, sys

def found(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True

def prepare():
    return {"python": list(sys.version_info[:2]), "prefix": os.path.realpath(sys.prefix)}

def load(device, prepared):
    ours = ("headrace", "contracts", "services", "redis", "pydantic")
    return {**prepared, "sees": [name for name in ours if found(name)]}

def run(model, inputs, job):
    for step in range(int(inputs.get("steps", 3))):
        job.progress(step + 1, 3, phase="denoising", odd=float("nan"))
    job.milestone("prompt.encoded", words=("a", "b"))
    job.preview(b"\\x89PNG-not-really", 1)
    job.artifact("told.txt", b"text", kind="text")
    if inputs.get("fail"):
        raise ValueError("as asked")
    return {**model, "argument": inputs["prompt"]}

def run_batch(model, inputs, jobs):
    return [run(model, one, job) if not one.get("fail") else job.Reject("no") for one, job in zip(inputs, jobs)]
"""


def pythons() -> list[str]:
    """Return the interpreters of this machine, one for each version, also those that pyenv keeps off the PATH."""
    folders = [os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))]
    kept = [str(path) for folder in folders for path in Path(folder).glob("versions/*/bin/python3.*")]
    found = {}
    for minor in range(OLDEST, NEWEST):
        for path in [shutil.which(f"python3.{minor}"), *kept]:
            if path and path.endswith(f"/python3.{minor}") and "/shims/" not in path:
                found.setdefault(minor, path)
    return list(found.values())


def written(folder: Path, interpreter: str) -> ModelSpec:
    """Write a pipelines.toml whose model has an interpreter, and return the model."""
    (folder / "told.py").write_text(PIPELINE)
    (folder / "any.json").write_text('{"type": "object"}')
    text = f'entry = "told.py"\ninputs = "any.json"\nvram_mib = 64\nmax_batch = 4\ninterpreter = "{interpreter}"\n'
    (folder / "pipelines.toml").write_text(f"[models.told]\n{text}")
    spec = load(folder / "pipelines.toml").find("told")
    assert spec is not None
    return spec


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An environment of this Python without a single package."""
    folder = (tmp_path / "bare").resolve()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


async def test_a_model_runs_in_a_virtual_environment_of_its_own(tmp_path: Path, bare: Path) -> None:
    spec = written(tmp_path, "bare/bin/python")  # relative to the file, like every path in it
    async with rig(tmp_path) as own:
        recorder = Recorder()
        outcome = await asyncio.wait_for(own.slot.run(own.attempt(spec, prompt="x"), recorder), PATIENCE_S)

    assert outcome.verdict is Verdict.COMPLETED, outcome.message
    told = {"python": list(sys.version_info[:2]), "prefix": str(bare), "sees": [], "argument": "x"}
    assert outcome.result == told


@pytest.mark.parametrize("path", sorted(MAIN.parent.glob("*.py")), ids=lambda path: path.name)
def test_the_child_is_written_in_the_oldest_python_it_may_run_under(path: Path) -> None:
    """Also where only one version is installed."""
    assert ast.parse(path.read_text(), feature_version=(3, OLDEST))


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
async def test_each_python_that_is_here_speaks_the_childs_language(tmp_path: Path, python: str) -> None:
    """All frames, both ends and a cancel, under versions that lack what ours takes for granted."""
    spec = written(tmp_path, python)
    async with rig(tmp_path) as own:
        recorder = Recorder()
        attempts = [own.attempt(spec, prompt=str(number), fail=number == 1) for number in range(3)]
        alone = await asyncio.wait_for(own.slot.run(attempts[0], recorder), PATIENCE_S)
        failed = await asyncio.wait_for(own.slot.run(attempts[1], Recorder()), PATIENCE_S)
        endless = own.attempt(spec, prompt="x", steps=10**9)
        heard, running = own.begin(endless)
        await heard.saw(Progress)
        own.slot.stop(endless.job, endless.fence, Stop.CANCEL)
        cancelled = await asyncio.wait_for(running, PATIENCE_S)
        members = [Member(own.attempt(spec, prompt=str(number), fail=number == 1), Recorder()) for number in range(3)]
        await asyncio.wait_for(own.slot.run_batch(members), PATIENCE_S)

    assert alone.verdict is Verdict.COMPLETED, alone.message
    assert alone.result is not None
    assert f"python3.{alone.result['python'][1]}" == Path(python).name
    assert {type(frame) for frame in recorder.telemetry} >= {Progress, Milestone, Preview, ArtifactFile}
    assert (failed.code, failed.message) == ("internal", "ValueError: as asked")
    assert (cancelled.verdict, cancelled.how) == (Verdict.CANCELLED, "cooperative")
    together = [member.outcome.result() for member in members]
    assert [one.code or one.verdict for one in together] == [Verdict.COMPLETED, "input_rejected", Verdict.COMPLETED]


@pytest.mark.parametrize(
    ("interpreter", "reason"),
    [("/nowhere/python", "No such file"), ("no-such-python", "No such file"), ("/", "denied")],
)
async def test_an_interpreter_that_cannot_be_started_is_named_as_the_cause(
    tmp_path: Path, interpreter: str, reason: str
) -> None:
    """What pipelines.toml says is told, where it lies on the host is not."""
    async with rig(tmp_path) as own:
        outcome = await own.slot.run(own.attempt(model("echo", interpreter=interpreter)), Recorder())
        again = await own.run("echo")

    assert outcome.code == "model_load_failed"
    assert outcome.message.startswith("cannot start its `interpreter` in pipelines.toml: ")
    assert reason in outcome.message
    assert again.verdict is Verdict.COMPLETED

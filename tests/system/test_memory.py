"""What a job takes of a device: told by its first run, measured by an audit, and reserved from then on."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contracts.profiles import predict, read_profiles
from tests.harness import Stack
from tests.harness.tail import eventually
from tests.harness.up import ROOT
from tests.headrace.up_process import plain_environment
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
SIZED = """
import time

def run(model, inputs, job):
    block = bytearray(b"x") * (inputs["size"] << 20)
    time.sleep(inputs.get("hold_ms", 0) / 1000)
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string"},
        "size": {"type": "integer", "minimum": 1},
        "hold_ms": {"type": "integer"},
    },
}
TOML = """
[models.sized]
entry = "sized/pipeline.py"
inputs = "sized/inputs.schema.json"
cost_inputs = ["size"]
"""


def write_pipelines(folder: Path, declared: str = "") -> Path:
    """Write a pipelines file with a model of which nobody knows what it takes, or its author says so."""
    (folder / "sized").mkdir(parents=True)
    (folder / "sized/pipeline.py").write_text(SIZED)
    (folder / "sized/inputs.schema.json").write_text(json.dumps(SCHEMA))
    (folder / "pipelines.toml").write_text(TOML + declared)
    return folder / "pipelines.toml"


async def run(stack: Stack, size: int) -> Any:
    """Run a job of this size; returns what it was assigned with."""
    job_id = await stack.submit("sized", {"size": size})
    assert await stack.wait_for_ends(job_id) == ["job.completed"]
    return stack.log.of(job_id, "job.assigned")[-1].raw_data()


async def audit(pipelines: Path, data_dir: Path, *words: str) -> Any:
    """Measure the model as an operator does."""
    command = [sys.executable, "-m", "headrace", "vram", "audit", "sized", "--json", "--pipelines", str(pipelines)]
    environment = plain_environment(HEADRACE_DATA_DIR=str(data_dir), PYTHONPATH=str(ROOT))
    done = await asyncio.to_thread(
        subprocess.run, [*command, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_unknown_then_seen_then_measured(start_stack: Starter, tmp_path: Path) -> None:
    """Field case 68: the parameters decide what is reserved, and what no device has is refused instead of tried.

    What was measured counts for ingest and the worker while they run on.
    """
    pipelines = write_pipelines(tmp_path / "pipelines")
    stack = await start_stack(devices="sim:256MiB", pipelines=pipelines)

    await run(stack, 40)
    seen = (await stack.log.wait_for_any("model.profiled", source="provisional")).raw_data()
    assert seen["bucket"] == "size=40"
    assert 40 * MIB < seen["bytes"] < 48 * MIB
    assert (await run(stack, 40))["bytes"] == seen["bytes"]

    found = await audit(pipelines, stack.folder / "d", "--grid", "size=8,16,32", "--device", "sim:256MiB")
    assert found["told"] == ["default"]
    await stack.log.wait_for("sized@1", "model.profiled")
    (profile,) = read_profiles((pipelines.parent / "profiles/sized@1.json").read_bytes()).profiles

    async def is_known() -> bool:
        worker_knows = any(fields.get("profiles") for fields in (await stack.store.workers("default")).values())
        return worker_knows and (await run(stack, 12))["bytes"] == predict(profile, {"size": 12}).bytes

    await eventually(is_known, "what was measured is known")
    assert (await run(stack, 40))["bytes"] == predict(profile, {"size": 40}).bytes

    async def is_refused() -> bool:  # ingest has seen the worker, and its device
        answer = await stack.post_job("sized", {"size": 400})
        return (answer.status, answer.json["code"]) == (422, "unschedulable") if answer.status != 201 else False

    await eventually(is_refused, "ten times the memory is refused")
    (worker,) = (await stack.store.workers("default")).values()
    assert [fit["unlike"] for fit in json.loads(worker["profiles"])["sized@1"]] == [[]]
    await stack.audit()


def at_once(stack: Stack) -> int:
    """Return how many attempts held the device at the same time, at most."""
    running, most = set[str](), 0
    for entry in stack.log.entries:
        if entry.type == "job.started":
            running.add(entry.subject)
        elif entry.type in ("job.device_released", "job.attempt_failed"):
            running.discard(entry.subject)
        most = max(most, len(running))
    return most


async def test_so_many_as_the_audit_says_run_at_once_and_none_runs_out_of_memory(
    start_stack: Starter, tmp_path: Path
) -> None:
    pipelines = write_pipelines(tmp_path / "pipelines")
    found = await audit(pipelines, tmp_path / "none", "--grid", "size=12,24,36", "--device", "sim:160MiB")
    n = found["points"][-1]["concurrency"]
    settings = {"HEADRACE_WORKER__SLOTS": str(n + 1)}
    stack = await start_stack(devices="sim:160MiB", pipelines=pipelines, settings=settings)

    for _ in range(200):
        await stack.submit("sized", {"size": 36, "hold_ms": 5})
    ends = await stack.wait_for_ends(limit_s=120)

    assert ends == ["job.completed"] * 200
    assert [entry for entry in stack.log.entries if entry.type == "job.attempt_failed"] == []
    assert at_once(stack) == n == 160 * MIB // json_bytes(found)
    await stack.audit()


def json_bytes(found: Any) -> int:
    """Return what the audit reserves for its largest point."""
    profile = read_profiles(json.dumps({"model": "sized@1", "profiles": [found["profile"]]}).encode()).profiles[0]
    return predict(profile, profile.points[-1].inputs).bytes


async def test_one_more_than_fits_runs_out_of_memory_and_every_job_is_done_nevertheless(
    start_stack: Starter, tmp_path: Path
) -> None:
    """Whoever says less than the truth has five jobs at once where four fit: each fails once, runs alone, is raised."""
    pipelines = write_pipelines(tmp_path / "pipelines", declared="vram_mib = 32\n")
    settings = {"HEADRACE_WORKER__SLOTS": "5"}
    stack = await start_stack(devices="sim:160MiB", pipelines=pipelines, settings=settings)

    for _ in range(20):
        await stack.submit("sized", {"size": 36, "hold_ms": 5})
    ends = await stack.wait_for_ends(limit_s=120)

    failed = [entry.raw_data()["error"]["code"] for entry in stack.log.entries if entry.type == "job.attempt_failed"]
    assert failed
    assert set(failed) == {"out_of_memory"}
    assert ends == ["job.completed"] * 20
    told = [entry.raw_data() for entry in stack.log.entries if entry.type == "model.profiled"]
    raised = [each["bytes"] for each in told if each["source"] == "oom"]
    assert raised == sorted(set(raised))  # each says more than the one before
    assert 36 * MIB < raised[0] <= raised[-1] < 44 * MIB
    assert (await run(stack, 36))["bytes"] == raised[-1]
    await stack.audit()

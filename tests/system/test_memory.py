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
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20
SIZED = 'def run(model, inputs, job):\n    block = bytearray(b"x") * (inputs["size"] << 20)\n'
SCHEMA = {"type": "object", "properties": {"prompt": {"type": "string"}, "size": {"type": "integer", "minimum": 1}}}
TOML = """
[models.sized]
entry = "sized/pipeline.py"
inputs = "sized/inputs.schema.json"
"""


def write_pipelines(folder: Path) -> Path:
    """Write a pipelines file with a model of which nobody knows what it takes."""
    (folder / "sized").mkdir(parents=True)
    (folder / "sized/pipeline.py").write_text(SIZED)
    (folder / "sized/inputs.schema.json").write_text(json.dumps(SCHEMA))
    (folder / "pipelines.toml").write_text(TOML)
    return folder / "pipelines.toml"


async def run(stack: Stack, size: int) -> Any:
    """Run a job of this size; returns what it was assigned with."""
    job_id = await stack.submit("sized", {"size": size})
    assert await stack.wait_for_ends(job_id) == ["job.completed"]
    return stack.log.of(job_id, "job.assigned")[-1].raw_data()


async def audit(stack: Stack, pipelines: Path, *words: str) -> Any:
    """Measure the model as an operator does, beside the stack."""
    command = [sys.executable, "-m", "headrace", "vram", "audit", "sized", "--json", "--pipelines", str(pipelines)]
    environment = stack.environment() | {"HEADRACE_DATA_DIR": str(stack.folder / "d")}
    done = await asyncio.to_thread(
        subprocess.run, [*command, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_unknown_then_seen_then_measured(start_stack: Starter, tmp_path: Path) -> None:
    """Field case 68: the parameters decide what is reserved, and what no device has is refused instead of tried."""
    pipelines = write_pipelines(tmp_path / "pipelines")
    stack = await start_stack(devices="sim:256MiB", pipelines=pipelines)

    await run(stack, 40)
    seen = (await stack.log.wait_for_any("model.profiled", source="provisional")).raw_data()
    assert seen["bucket"] == "size=40"
    assert 40 * MIB < seen["bytes"] < 48 * MIB
    assert (await run(stack, 40))["bytes"] == seen["bytes"]

    found = await audit(stack, pipelines, "--grid", "size=8,16,32", "--device", "sim:256MiB")
    assert found["told"] == ["default"]
    await stack.log.wait_for("sized@1", "model.profiled")
    assert await asyncio.to_thread(stack.stop) == 0
    await asyncio.to_thread(stack.start)
    (profile,) = read_profiles((pipelines.parent / "profiles/sized@1.json").read_bytes()).profiles
    for size in (12, 40):
        assert (await run(stack, size))["bytes"] == predict(profile, {"size": size}).bytes

    async def is_refused() -> bool:  # ingest has seen the worker, and its device
        answer = await stack.post_job("sized", {"size": 400})
        return (answer.status, answer.json["code"]) == (422, "unschedulable") if answer.status != 201 else False

    await eventually(is_refused, "ten times the memory is refused")
    (worker,) = (await stack.store.workers("default")).values()
    assert [fit["unlike"] for fit in json.loads(worker["profiles"])["sized@1"]] == [[]]
    await stack.audit()

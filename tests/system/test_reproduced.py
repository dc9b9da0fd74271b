"""What ran can run again and is held against the first time: the demo model, one that draws lots, a changed file."""

import asyncio
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Stack
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 4, 4) + bytes(100)
SHIPPED = Path(__file__).parents[2] / "pipelines"
# A picture whose pixels are the same up to one step of 255, or up to all of them, each time it is drawn.
LOTS = """
import io, os
from PIL import Image

def run(model, inputs, job):
    noise = bytes(each * inputs["most"] // 255 for each in os.urandom(48))
    picture = io.BytesIO()
    Image.frombytes("RGB", (4, 4), noise).save(picture, "PNG")
    job.artifact("lots.png", picture.getvalue(), kind="image", variant="original")
    return {"most": inputs["most"]}
"""
MODELS = """
[models.scenes]
entry = "scenes/pipeline.py"
inputs = "scenes/inputs.schema.json"
vram_mib = 200
max_batch = 8
[models.lots]
entry = "lots/pipeline.py"
inputs = "any.schema.json"
vram_mib = 16
[models.files]
entry = "files/files.py"
inputs = "files/files.schema.json"
vram_mib = 16
"""


def pipelines(folder: Path) -> Path:
    """Write a pipelines file of models that lie in different places."""
    shutil.copytree(SHIPPED / "scenes", folder / "scenes", ignore=shutil.ignore_patterns("training", "__pycache__"))
    samples = Path(__file__).parents[1] / "pipelines"
    for name in ("lots", "files"):
        (folder / name).mkdir()
    (folder / "lots/pipeline.py").write_text(LOTS)
    shutil.copy(samples / "any.schema.json", folder)
    for name in ("files.py", "files.schema.json"):
        shutil.copy(samples / name, folder / "files")
    (folder / "pipelines.toml").write_text(MODELS)
    return folder / "pipelines.toml"


class Served:
    """A picture behind a URL, which may become another one."""

    def __init__(self) -> None:
        self.content = self.first = PNG

    async def __aenter__(self) -> "Served":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/a.png"
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.content)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + self.content)
        await writer.drain()
        writer.close()


async def reproduced(stack: Stack, job_id: str) -> dict[str, Any]:
    """Let it run again; returns the new job."""
    made = await stack.request("POST", f"/v1/jobs/{job_id}/reproduce")
    assert made.status == 201, made
    stack.jobs.append(made.json["id"])
    await stack.wait_for_ends(made.json["id"])
    return await stack.get(made.json["id"])


async def test_a_result_is_given_again_or_it_is_said_how_far_off_it_is(start_stack: Starter, tmp_path: Path) -> None:
    file = await asyncio.to_thread(pipelines, tmp_path)
    stack = await start_stack(pipelines=file, settings={"HEADRACE_INPUTS__ALLOW_PRIVATE": "loopback"})
    scene = await stack.submit("scenes", {"size": 64, "steps": 4}, prompt="a red lighthouse by the sea at sunset")
    near, far = await stack.submit("lots", {"most": 2}), await stack.submit("lots", {"most": 255})
    await stack.wait_for_ends()
    before = await stack.get(scene)

    close, different = await reproduced(stack, near), await reproduced(stack, far)
    again = await reproduced(stack, scene)

    exact = {"of": scene, "match": "exact", "distance": 0.0, "changed": []}
    assert again["reproduction"] == exact
    assert [one["sha256"] for one in again["artifacts"]] == [one["sha256"] for one in before["artifacts"]]
    assert again["manifest"] == before["manifest"]
    assert again["input"] == before["input"]
    assert "seed" in again["input"]  # drawn for the first, pinned for the second
    assert close["reproduction"]["match"] == "close"
    assert 0 < close["reproduction"]["distance"] < 0.01
    assert different["reproduction"]["match"] == "different"
    assert different["reproduction"]["distance"] > 0.05
    created = [stack.log.of(job, "job.created")[0].raw_data() for job in (scene, again["id"])]
    assert [one.get("maxBatch") for one in created] == [8, None]  # others' pictures would change the bytes
    said = stack.log.of(again["id"], "job.completed")[-1].raw_data()
    assert said["reproduction"] == {"of": scene, "match": "exact", "distance": 0.0}
    assert await stack.get(scene) == before  # the first is only read

    async with Served() as served:
        given = await stack.submit("files", {"image": served.url})
        await stack.wait_for_ends(given)
        served.content = PNG + b"another"
        spoilt = await reproduced(stack, given)
        served.content = served.first
        same = await reproduced(stack, given)
    assert (spoilt["status"], spoilt["error"]["code"]) == ("failed", "input_rejected")
    assert f"the file of /input/image is not the one that {given} was given" in spoilt["error"]["message"]
    assert same["reproduction"]["match"] == "exact"

    await stack.audit()

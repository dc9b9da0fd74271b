"""A whole stack on a GPU that others use, too. The driver's library is made up; all else is real, but the card."""

import shutil
import time
from pathlib import Path

import pytest

from tests.gpu_worker.card import GIB, Card
from tests.harness import Stack
from tests.system.test_explained import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
PIPELINES = Path(__file__).parents[1] / "pipelines"
MODELS = """
[models.big]
entry = "noop.py"
inputs = "any.schema.json"
vram_mib = 3000
"""


async def test_a_job_waits_while_another_program_holds_the_memory_it_needs(tmp_path: Path) -> None:
    """Field case 70: it says what is free, starts within 5 s after the other program ends, and never runs out."""
    card = Card(tmp_path / "packages", total_bytes=4 * GIB)
    card.hold({4_000_001: 2 * GIB})
    (tmp_path / "pipelines.toml").write_text(MODELS)
    for name in ("noop.py", "any.schema.json"):
        shutil.copy(PIPELINES / name, tmp_path)
    settings = {"PYTHONPATH": str(card.folder), "HEADRACE_WORKER__RESERVE_MIB": "0"}
    stack = Stack(devices="gpu", settings=settings, pipelines=tmp_path / "pipelines.toml")
    try:
        stack.start()
        async with stack.watched():
            job_id = await stack.submit("big")
            told = await until(stack, job_id, "insufficient_vram")
            detail = told["reasons"][0]["detail"]
            assert detail.startswith("gpu memory: 2.0 GiB free of 4.0 GiB, 2.9 GiB needed.")
            (shown,) = (await stack.admin("GET", "/workers")).json["data"]
            (device,) = shown["devices"]
            assert device | {"slots": [], "models": []} == {
                "uuid": card.uuid, "kind": "cuda", "model": "NVIDIA L4", "driver": "570.86.15", "bytesTotal": 4 * GIB,
                "bytesReserved": 0, "bytesFree": 2 * GIB, "bytesForeign": 2 * GIB, "utilizationPercent": 37,
                "temperatureC": 61, "slots": [], "models": [],
            }  # fmt: skip
            async with stack.http.get(stack.ready["url"] + "/metrics") as answer:
                metrics = await answer.text()
            labels = f'{{device="{card.uuid}",pool="default"}}'
            assert f"headrace_gpu_memory_foreign_bytes{labels} 2.147483648e+09" in metrics
            assert f"headrace_gpu_temperature_celsius{labels} 61.0" in metrics

            assert stack.log.of(job_id, "job.started") == []
            card.hold({})
            gone_s = time.monotonic()
            await stack.wait_for(job_id, "job.started")
            assert time.monotonic() - gone_s < 5
            print(f"started {time.monotonic() - gone_s:.2f} s after the other program was gone")
            assert await stack.wait_for_ends() == ["job.completed"]
            assert len(stack.log.of(job_id, "job.started")) == 1
            await stack.audit()
    finally:
        stack.stop()
        stack.discard()

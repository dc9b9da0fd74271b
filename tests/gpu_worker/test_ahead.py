"""What comes next on a device, with real children: prepared while the present job runs, loaded when there is room."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.slots.outcome import Verdict
from tests.gpu_worker.residents import MIB, named, pids, run, sim
from tests.gpu_worker.rig import QUICK, eventually, model


async def test_what_comes_next_is_prepared_while_the_present_job_runs_and_adopted(tmp_path: Path) -> None:
    """Prewarm: imports and prepare() are over before the slot is free; only load() is left to wait for."""
    a, b = named(tmp_path, "a"), named(tmp_path, "b", PREPARE_S="0.4")
    async with sim(tmp_path, 80) as own:
        running, hear = asyncio.create_task(run(own, a, 70, steps=100, step_s=0.02)), own.slot
        await eventually(lambda: hear.state == "busy", "a runs")
        own.slot.expect([Want(b, 70 * MIB)])
        await eventually(lambda: "b@1" in pids(own), "b is started")
        prepared = pids(own)["b@1"]
        assert [each["state"] for each in own.memory.children.describe()] == ["busy", "prepared"]
        await running
        outcome, heard = await run(own, b, 70)
        assert outcome.result == {"pid": prepared}
        assert (heard.loaded[0].evicted, heard.loaded[0].ms < 300) == (("a@1",), True)


async def test_what_prepare_made_and_load_copied_is_the_devices(tmp_path: Path) -> None:
    """The host's copy goes after the load: it must not hide what the device holds from who would come in beside it."""
    entry = tmp_path / "copies.py"
    author = "def prepare():\n    return bytearray(b'x' * (60 << 20))\n"
    author += "def load(device, prepared):\n    return bytes(prepared)\n"
    entry.write_text(author + "def run(model, inputs, job):\n    return bytearray(inputs['mib'] << 20) and None\n")
    spec = replace(model("noop"), name="copies", entry=entry)
    async with sim(tmp_path, 100) as own:
        outcome, _ = await run(own, spec, 90, mib=25)
        (there,) = own.memory.children.describe()
        assert (outcome.verdict, there["bytes"]) == (Verdict.COMPLETED, pytest.approx(62 * MIB, abs=2 * MIB))
        assert outcome.peak_bytes == pytest.approx(85 * MIB, abs=3 * MIB)
        assert (await run(own, spec, 90, mib=40))[0].code == "out_of_memory"


async def test_what_comes_next_is_loaded_beside_the_present_job_where_it_fits(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 200) as own:
        running = asyncio.create_task(run(own, a, steps=100, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        own.slot.expect([Want(b, 64 * MIB)])
        await eventually(lambda: own.memory.is_warm(b), "b is loaded")
        assert own.slot.state == "busy"
        await running
        _, heard = await run(own, b)
        assert heard.loads == []


async def test_a_child_that_nobody_wants_any_more_is_ended(tmp_path: Path) -> None:
    a, b, c = (named(tmp_path, name) for name in "abc")
    async with sim(tmp_path, 80, replace(QUICK, host_s=0.1)) as own:
        running = asyncio.create_task(run(own, a, 70, steps=100, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        own.slot.expect([Want(b, 70 * MIB)])
        own.slot.expect([Want(c, 70 * MIB)])  # b was withdrawn, c came instead
        await eventually(lambda: set(pids(own)) == {"a@1", "c@1"}, "b is gone, c is there")
        own.slot.expect([])
        await eventually(lambda: set(pids(own)) == {"a@1"}, "c is gone, too")
        await running

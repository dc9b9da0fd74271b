"""A load that stands still at the end of its slice: told from one that takes long."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gpu_worker.process.memory import SUPPORTED
from services.gpu_worker.process.stillness import MOST_CPU_S, ROOM_BYTES, Doing, Stillness
from services.gpu_worker.slots.outcome import Verdict
from tests.gpu_worker.rig import Recorder, model, rig

AUTHOR = """
import mmap, threading, time
held = []
def load(device, prepared):
    for _ in range({pieces}):  # as a library that starts threads until it may not
        try:
            held.append(mmap.mmap(-1, 256 << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            break
    threading.Event().wait({wait_s})
def run(model, inputs, job):
    return {{"held": len(held)}}
"""


@pytest.mark.skipif(not SUPPORTED, reason="the kernel limits each child on Linux only")
async def test_a_load_that_waits_for_ever_with_its_slice_full_is_out_of_memory(tmp_path: Path) -> None:
    """As onnxruntime does where its threads cannot be started: ended in seconds, not in `load_s`; the next job runs."""
    (tmp_path / "full.py").write_text(AUTHOR.format(pieces=1_000, wait_s=None))
    full = replace(model("noop"), name="full", entry=tmp_path / "full.py")
    async with rig(tmp_path, kind="sim") as own:
        outcome = await own.slot.run(own.attempt(full, 10), Recorder())
        assert (outcome.verdict, outcome.code, outcome.killed_child) == (Verdict.FAILED, "out_of_memory", False)
        assert "the load does nothing any more" in outcome.message
        assert (await own.run("echo")).verdict is Verdict.COMPLETED
        assert own.memory.ledger.held_bytes < 10 << 20


@pytest.mark.skipif(not SUPPORTED, reason="the kernel limits each child on Linux only")
async def test_a_load_that_waits_with_room_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "roomy.py").write_text(AUTHOR.format(pieces=20, wait_s=2.0))
    roomy = replace(model("noop"), name="roomy", entry=tmp_path / "roomy.py")
    async with rig(tmp_path, kind="sim") as own:
        outcome = await own.slot.run(own.attempt(roomy, 10), Recorder())
        assert outcome.result == {"held": 20}


LOOKS = st.lists(st.tuples(st.floats(0, 0.02), st.booleans(), st.sampled_from([0, ROOM_BYTES - 1, ROOM_BYTES])))


@given(LOOKS)
def test_it_is_over_only_after_its_time_with_the_slice_full_and_nothing_done(
    looks: list[tuple[float, bool, int]],
) -> None:
    stillness, cpu_s, doing = Stillness(3.0), 0.0, list[Doing]()
    for at_s, (more_s, is_waiting, room_bytes) in enumerate(looks):
        cpu_s += more_s
        doing.append(Doing(cpu_s, is_waiting, room_bytes))
        if stillness.is_over(doing[-1], at_s):
            assert all(each.is_waiting and each.room_bytes < ROOM_BYTES for each in doing[-4:])
            assert len(doing) >= 4
            assert doing[-1].cpu_s - doing[-4].cpu_s <= MOST_CPU_S

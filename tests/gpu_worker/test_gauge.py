"""The memory of a GPU on the books: what others hold, what a child holds and held at most, what is told of it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from services.gpu_worker.devices import Device
from services.gpu_worker.gpu_watch import STEP_BYTES, GpuWatch, in_steps
from services.gpu_worker.gpus.facts import Activity, Memory
from services.gpu_worker.gpus.gauge import CONTEXT_BYTES, Gauge
from services.gpu_worker.process.gpu_memory import GpuMemory
from services.gpu_worker.residency.device_memory import DeviceMemory
from tests.gpu_worker import rig as rigs

GIB, MIB = 1 << 30, 1 << 20


class Card:
    """A driver that says what a test wants."""

    def __init__(self, total: int = 24 * GIB) -> None:
        self.total, self.held = total, dict[int, int | None]()

    def memory(self, uuid: str) -> Memory:
        used = sum(size or 0 for size in self.held.values())
        return Memory(self.total, self.total - used, used)

    def holders(self, uuid: str) -> dict[int, int | None]:
        return dict(self.held)

    def activity(self, uuid: str) -> Activity:
        return Activity(5, 40)


@contextmanager
def child_with_helper() -> Iterator[tuple[int, int]]:
    """A process group of a child and its helper, as ours are: the child's number names the group."""
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.pid, int(child.stdout.readline())
        finally:
            os.killpg(child.pid, 9)


def test_a_child_and_its_helper_are_ours_also_right_after_their_end() -> None:
    card = Card()
    gauge = Gauge(card, "GPU-1")
    with child_with_helper() as (child, helper):
        gauge.adopt(child)
        card.held = {child: 2 * GIB, helper: GIB, os.getpid(): 4 * GIB}
        assert gauge.foreign_bytes(gauge.read(), booked_bytes=5 * GIB) == 4 * GIB
        assert gauge.bytes_of(child) == 3 * GIB
    assert gauge.foreign_bytes(gauge.read(), booked_bytes=5 * GIB) in (4 * GIB, 5 * GIB)  # the helper may be forgotten
    card.held = {child: 2 * GIB}  # the driver lags behind the end of a process
    assert gauge.foreign_bytes(gauge.read(), booked_bytes=2 * GIB) == 0


def test_the_peak_of_a_child_is_what_it_holds_and_what_its_allocator_had_above_that() -> None:
    card = Card()
    gauge = Gauge(card, "GPU-1")
    memory = GpuMemory(os.getpgrp(), gauge)
    card.held = {os.getpid(): 700 * MIB}
    allocator = {"reserved": 400 * MIB, "allocated": 300 * MIB, "peak": 900 * MIB}
    memory.reset_peak()
    assert memory.measure(allocator) == (700 * MIB, 1200 * MIB)
    assert memory.context_bytes == gauge.context_bytes == 300 * MIB  # learned, for the next child too
    assert GpuMemory(os.getpgrp(), gauge).context_bytes == 300 * MIB
    memory.sample({os.getpid(): 1500 * MIB})  # seen at a heartbeat: an arena that no allocator tells of
    assert memory.measure(allocator).peak_bytes == 1500 * MIB
    memory.reset_peak()
    assert memory.measure(None) == (700 * MIB, 700 * MIB)
    memory.close()


def test_where_the_driver_names_no_process_the_allocator_is_believed() -> None:
    card = Card()
    memory = GpuMemory(os.getpgrp(), Gauge(card, "GPU-1"))
    assert memory.measure(None) == (None, None)
    allocator = {"reserved": 400 * MIB, "allocated": 300 * MIB, "peak": 900 * MIB}
    assert memory.measure(allocator) == (400 * MIB + CONTEXT_BYTES, 900 * MIB + CONTEXT_BYTES)
    memory.close()


async def test_what_others_hold_goes_off_the_books_in_steps(tmp_path: Path) -> None:
    """Field case 70."""
    card = Card()
    device = Device("GPU-1", "cuda", 0, card.total, -1, 0, gauge=Gauge(card, "GPU-1"))
    memory = DeviceMemory(device, rigs.QUICK, rigs.environment, reserve_bytes=GIB)
    watch = GpuWatch([memory])
    await watch.look()
    assert watch.room_bytes(memory) == 23 * GIB
    card.held = {1: 10 * GIB + 5 * MIB}
    await watch.look()
    assert watch.room_bytes(memory) == 13 * GIB - STEP_BYTES
    assert watch.describe(memory)["bytesForeign"] == 10 * GIB + 5 * MIB
    card.held = {1: 10 * GIB}  # it breathes: nothing new is told
    await watch.look()
    assert watch.room_bytes(memory) == 13 * GIB - STEP_BYTES
    card.held = {1: 24 * GIB}
    await watch.look()
    assert watch.room_bytes(memory) == 1  # 0 would mean that nobody counts
    card.held = {}
    await watch.look()
    assert watch.room_bytes(memory) == 23 * GIB
    await memory.close()


@given(st.integers(0, 100 * GIB), st.none() | st.integers(0, 400).map(lambda steps: steps * STEP_BYTES))
def test_what_is_told_is_there_and_at_most_two_steps_too_little(room_bytes: int, told_bytes: int | None) -> None:
    now_bytes = in_steps(room_bytes, told_bytes)
    assert now_bytes <= room_bytes < now_bytes + 2 * STEP_BYTES
    assert now_bytes % STEP_BYTES == 0
    assert in_steps(room_bytes, now_bytes) == now_bytes

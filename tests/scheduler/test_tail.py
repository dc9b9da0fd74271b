"""The leader is told at once of what may need a choice, and a moment later of starts, which do not."""

import asyncio

import pytest

from contracts.store.log import Poison
from contracts.wire import Entry
from services.scheduler.tail import CALM_S, Tail, is_calm


def entries(*types: str) -> list[Entry | Poison]:
    return [Entry(f"{number}-0", each, "job_1", b"{}") for number, each in enumerate(types, 1)]


@pytest.mark.parametrize("types", [("job.started",), ("job.device_released", "job.started"), ("job.progress",) * 2])
def test_starts_are_calm(types: tuple[str, ...]) -> None:
    assert is_calm(entries(*types))


@pytest.mark.parametrize(
    "types",
    [
        ("job.created",),
        ("job.device_released",),  # the slot is idle while its files are on their way
        ("job.device_released", "job.completed"),
        ("job.started", "job.assigned"),  # of our own turn, which is waited for
        ("worker.changed",),
    ],
)
def test_what_may_need_a_choice_is_not(types: tuple[str, ...]) -> None:
    assert not is_calm(entries(*types))


def test_an_entry_that_cannot_be_read_is_told_at_once() -> None:
    assert not is_calm([Poison("1-0", "damaged")])


class Once:
    """A reader that has one batch and then nothing."""

    def __init__(self, batch: list[Entry | Poison]) -> None:
        self._batches = [batch]

    async def read(self, count: int = 0, block_ms: int | None = None) -> list[Entry | Poison]:
        if not self._batches:
            await asyncio.get_running_loop().create_future()
        return self._batches.pop()


@pytest.mark.parametrize(("types", "is_late"), [(("job.started",), True), (("job.created",), False)])
async def test_nothing_that_was_read_is_kept_back_for_long(types: tuple[str, ...], is_late: bool) -> None:
    arrived, loop = asyncio.Event(), asyncio.get_running_loop()
    tail = Tail(Once(entries(*types)), arrived)  # type: ignore[arg-type]
    begun_s = loop.time()
    following = asyncio.create_task(tail.follow(asyncio.Event()))
    async with asyncio.timeout(5):
        await arrived.wait()
    if is_late:
        assert loop.time() - begun_s >= CALM_S / 2
    assert len(tail.take(10)) == len(types)
    following.cancel()

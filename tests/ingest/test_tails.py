"""One reader and one ring for all who follow."""

import asyncio
from collections.abc import Sequence

from contracts.errors import StoreUnavailable
from services.ingest.tails import Read, Tail


class Stream:
    """A stream in memory; each opening reads it from its beginning."""

    def __init__(self) -> None:
        self.items: list[tuple[str, int]] = []
        self.opened = self.reads = 0
        self.away = False
        self.more = asyncio.Event()

    def open(self) -> Read[int]:
        self.opened += 1
        place = 0

        async def read() -> Sequence[tuple[str, int]]:
            nonlocal place
            self.reads += 1
            if self.away:
                raise StoreUnavailable("away")
            if place == len(self.items):
                self.more.clear()
                await self.more.wait()
            found, place = self.items[place:], len(self.items)
            return found

        return read

    def add(self, *items: tuple[str, int]) -> None:
        self.items += items
        self.more.set()


async def test_all_followers_share_one_reader_and_see_their_own_subject() -> None:
    stream, stop = Stream(), asyncio.Event()
    stream.add(("a", 1), ("b", 2))
    tail = Tail(stream.open, 8, stop)
    with tail.follow("a") as first:
        assert await first.wait(5)
        with tail.follow("a") as second, tail.follow("b") as other:
            assert (first.take(), second.take(), other.take()) == ([1], [1], [2])  # who comes late sees what is kept
            stream.add(("a", 3))
            assert await first.wait(5)
            assert (first.take(), second.take(), other.take()) == ([3], [3], [])
            assert second.take(again=True) == [1, 3]
    assert (stream.opened, stream.reads) == (1, 3)
    stop.set()
    stream.more.set()
    await tail.aclose()


async def test_one_that_does_not_read_misses_what_has_left_the_ring() -> None:
    stream, stop = Stream(), asyncio.Event()
    tail = Tail(stream.open, 2, stop)
    with tail.follow("a") as slow, tail.follow("b") as other:
        stream.add(("a", 1), ("a", 2), ("a", 3), ("b", 4))
        assert await other.wait(5)
        assert slow.take() == [3]
        assert len(tail._ring) == 2
    stop.set()
    stream.more.set()
    await tail.aclose()


async def test_the_reader_rests_while_nobody_follows_and_begins_again() -> None:
    stream, stop = Stream(), asyncio.Event()
    tail = Tail(stream.open, 8, stop)
    with tail.follow("a") as feed:
        stream.add(("a", 1))
        assert await feed.wait(5)
    stream.add(("b", 2))
    assert tail._task is not None
    await asyncio.wait_for(tail._task, 5)
    assert not tail._ring
    stream.away = True
    with tail.follow("a") as feed:
        stream.away = False  # an outage is waited for
        assert await feed.wait(5)
        assert feed.take() == [1]
        stop.set()
        stream.more.set()
        await tail.aclose()
        assert feed.is_over


async def test_what_is_taken_back_is_not_kept_for_anybody() -> None:
    """A job was erased: what it printed is not in this process's memory any more either."""
    stream, stop = Stream(), asyncio.Event()
    stream.add(("a", 1), ("b", 2), ("a", -2), ("b", 3))
    tail = Tail(stream.open, 8, stop, lambda item: item < 0)
    with tail.follow("a") as gone, tail.follow("b") as other:
        assert await other.wait(5)
        assert (gone.take(again=True), other.take(again=True)) == ([], [2, 3])
    stop.set()
    stream.more.set()
    await tail.aclose()

"""One stream of a pool, read once for all of this process who follow something in it.

Promises: a follower sees what is kept of its subject, oldest first, and then what arrives; what is kept is one ring for
all followers, so one that does not read costs no memory, and misses what has left the ring meanwhile. The reader runs
only while somebody follows. Does not promise each item once: after a pause the stream is read from its beginning again.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from contracts.errors import StoreUnavailable
from contracts.store.log import pause

Item = TypeVar("Item")
Read = Callable[[], Awaitable[Sequence[tuple[str, Item]]]]  # the next items, each with its subject


class Follower(Generic[Item]):
    """What one follower has seen of its subject."""

    def __init__(self, ring: deque[tuple[int, str, Item]], subject: str) -> None:
        self._ring, self._subject = ring, subject
        self._next = 0
        self._changed = asyncio.Event()
        self.is_over = False  # the process ends

    def wake(self) -> None:
        """End a wait."""
        self._changed.set()

    def end(self) -> None:
        """Say that nothing more comes."""
        self.is_over = True
        self._changed.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until there is an item or another reason to look around; False when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take(self, *, again: bool = False) -> list[Item]:
        """Return what has arrived since the last time; or `again` all that is kept."""
        start = 0 if again else self._next
        if self._ring:
            self._next = self._ring[-1][0] + 1
        return [item for number, subject, item in self._ring if number >= start and subject == self._subject]


class Tail(Generic[Item]):
    """One stream. `open_` gives what reads it from its beginning; `most_kept`: how many items the ring has.

    `takes_back`: whether an item says that all that is kept of its subject is to be dropped.
    """

    def __init__(
        self, open_: Callable[[], Read[Item]], most_kept: int, stop: asyncio.Event,
        takes_back: Callable[[Item], bool] = lambda _: False,
    ) -> None:  # fmt: skip
        self._open, self._stop, self._takes_back = open_, stop, takes_back
        self._ring: deque[tuple[int, str, Item]] = deque(maxlen=most_kept)
        self._count = 0
        self._followers: dict[str, set[Follower[Item]]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def follow(self, subject: str) -> Iterator[Follower[Item]]:
        """See what is kept of a subject, and what arrives; a follower that is over once `stop` is set."""
        follower = Follower(self._ring, subject)
        follower.is_over = self._stop.is_set()
        self._followers.setdefault(subject, set()).add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())
        try:
            yield follower
        finally:
            self._followers[subject].discard(follower)
            if not self._followers[subject]:
                del self._followers[subject]

    async def aclose(self) -> None:
        """End all followers and the reader, once `stop` is set."""
        for group in self._followers.values():
            for follower in group:
                follower.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        read, failures = self._open(), 0
        while self._followers and not self._stop.is_set():
            try:
                items = await read()
            except StoreUnavailable:
                failures += 1
                await pause(failures, self._stop, random.random())
                continue
            failures = 0
            for subject, item in items:
                self._keep(subject, item)
        self._ring.clear()

    def _keep(self, subject: str, item: Item) -> None:
        if self._takes_back(item):
            others = [each for each in self._ring if each[1] != subject]
            self._ring.clear()  # the same ring: followers hold it
            self._ring.extend(others)
            return
        self._ring.append((self._count, subject, item))
        self._count += 1
        for follower in self._followers.get(subject, ()):
            follower.wake()

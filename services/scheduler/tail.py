"""The log as it grows, read ahead by a loop of its own, so that whoever folds it never waits for a read.

Promises: entries in order without a gap from the position on; survives any outage of the store; holds a bounded number
of entries. `arrived` is the wake-up of the process: set when something was read, a moment later when nobody waits for a
choice because of it. The store answers its readers before the worker that wrote: a leader that folded and chose at each
start would take the CPU from that very start, and mostly has a second reason for a turn soon after.
"""

import asyncio
import random
from collections import deque
from collections.abc import Sequence

from contracts.errors import StoreUnavailable
from contracts.store.log import LogReader, Poison, pause
from contracts.wire import Entry

READ_COUNT = 500
BLOCK_MS = 1_000
MOST_AHEAD = 20_000
CALM_S = 0.002
_CALM = frozenset({"job.started", "job.progress"})


class Tail:
    """Reads one log from a position on; run `follow` as a task."""

    def __init__(self, reader: LogReader, arrived: asyncio.Event) -> None:
        self._reader = reader
        self._entries: deque[Entry | Poison] = deque()
        self._room = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self.arrived = arrived

    def take(self, most: int) -> list[Entry | Poison]:
        """Return up to `most` entries that have been read and not taken yet."""
        taken = [self._entries.popleft() for _ in range(min(most, len(self._entries)))]
        self._room.set()
        return taken

    async def follow(self, stop: asyncio.Event) -> None:
        """Read until `stop`."""
        failures = 0
        while not stop.is_set():
            if len(self._entries) >= MOST_AHEAD:
                self._room.clear()
                await self._room.wait()
            try:
                entries = await self._reader.read(count=READ_COUNT, block_ms=BLOCK_MS)
            except StoreUnavailable:
                failures += 1
                await pause(failures, stop, random.random())
                continue
            failures = 0
            if entries:
                self._entries.extend(entries)
                self._wake(at_once=not is_calm(entries))
                await asyncio.sleep(0)  # whoever waits for these goes before the next read

    def _wake(self, *, at_once: bool) -> None:
        if at_once:
            self.arrived.set()
        elif self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(CALM_S, self._wake_late)

    def _wake_late(self) -> None:
        self._waking = None
        self.arrived.set()


def is_calm(entries: Sequence[Entry | Poison]) -> bool:
    """Whether no slot is idle and no job waits because of these: starts, with the releases that they came with."""
    types = [entry.type if isinstance(entry, Entry) else "" for entry in entries]
    following = [*types[1:], ""]
    return all(
        here in _CALM or (here == "job.device_released" and then == "job.started")
        for here, then in zip(types, following, strict=True)
    )

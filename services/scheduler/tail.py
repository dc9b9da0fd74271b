"""The log as it grows, read ahead by a loop of its own, so that whoever folds it never waits for a read.

Promises: entries in order without a gap from the position on; survives any outage of the store; holds a bounded number
of entries. `arrived` is the wake-up of the process: set when something was read, and when the reading ended.
"""

import asyncio
import random
from collections import deque

from contracts.errors import Unavailable
from contracts.store.anchored import AnchoredTail
from contracts.store.log import Poison, pause
from contracts.wire import Entry

READ_COUNT = 500
BLOCK_MS = 1_000
MOST_AHEAD = 20_000


class Tail:
    """Reads one log from a position on; run `follow` as a task."""

    def __init__(self, reader: AnchoredTail, arrived: asyncio.Event) -> None:
        self._reader = reader
        self._entries: deque[Entry | Poison] = deque()
        self._room = asyncio.Event()
        self.arrived = arrived

    def take(self, most: int) -> list[Entry | Poison]:
        """Return up to `most` entries that have been read and not taken yet."""
        taken = [self._entries.popleft() for _ in range(min(most, len(self._entries)))]
        self._room.set()
        return taken

    async def follow(self, stop: asyncio.Event) -> None:
        """Read until `stop`. Raises Forked when the log is another one."""
        try:
            await self._read_on(stop)
        finally:
            self.arrived.set()

    async def _read_on(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set():
            if len(self._entries) >= MOST_AHEAD:
                self._room.clear()
                await self._room.wait()
            try:
                entries = await self._reader.read(count=READ_COUNT, block_ms=BLOCK_MS)
            except Unavailable:
                failures += 1
                await pause(failures, stop, random.random())
                continue
            failures = 0
            if entries:
                self._entries.extend(entries)
                self.arrived.set()
                await asyncio.sleep(0)  # whoever waits for these goes before the next read

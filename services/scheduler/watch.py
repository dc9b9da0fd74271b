"""What a leader watches beside the log: the workers' pulses, how far the notifier is, where the newest snapshot stands,
whether the log has an archive.

A loop of its own: a slow read here never delays a turn. A read that fails restarts all leases; the two positions only
move forward, so an old value of theirs is safe.
"""

import asyncio
import random
import time
from collections.abc import Callable

import orjson

from contracts.errors import StoreUnavailable
from contracts.positions import START
from contracts.store import Store, keys
from contracts.store.log import pause
from contracts.waiting import wait
from services.scheduler.leases import Attempt, Leases, Pulse

POSITIONS_EVERY_MS = 1_000
Running = Callable[[], list[tuple[str, Attempt]]]


def mono_ms() -> int:
    """Return monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000


class Watch:
    """Run `follow` as a task; read the attributes."""

    def __init__(self, store: Store, pool: str, leases: Leases, running: Running, wake: asyncio.Event) -> None:
        self._store, self._pool, self._running, self._wake = store, pool, running, wake
        self.leases = leases
        self.look_count = 0  # successful ones
        self.needed_from = START
        self.snapshot_position = START
        self.is_archived = False  # then the archivist forgets and trims
        self._positions_at_ms: int | None = None

    async def follow(self, period_ms: int, stop: asyncio.Event) -> None:
        """Watch until `stop`."""
        failures = 0
        while not stop.is_set():
            try:
                await self._look()
                failures = 0
            except StoreUnavailable:
                self.leases.restart()
                failures += 1
                await pause(failures, stop, random.random())
            await wait(stop, period_ms / 1000)

    async def _look(self) -> None:
        running, begun_ms = self._running(), mono_ms()
        hashes = await self._store.workers(self._pool)
        pulses = {worker_id: _pulse(fields) for worker_id, fields in hashes.items()}
        self.leases.read(begun_ms, mono_ms(), pulses, running)
        self.look_count += 1
        self._wake.set()
        if self._positions_at_ms is None or mono_ms() - self._positions_at_ms >= POSITIONS_EVERY_MS:
            self.needed_from = await self._store.needed_by(self._pool, keys.GROUP_NOTIFIER)
            self.snapshot_position = (await self._store.snapshots.pointer(self._pool)).position
            self.is_archived = await self._store.archive.manifest(self._pool) is not None
            self._positions_at_ms = mono_ms()


def _pulse(fields: dict[str, str]) -> Pulse:
    held = orjson.loads(fields.get("held") or "[]")
    return Pulse(int(fields.get("b", 0)), frozenset((str(job_id), int(fence)) for job_id, fence in held))

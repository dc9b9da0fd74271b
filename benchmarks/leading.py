"""What the measurements of a leader share: a scheduler process, pending jobs, and workers that do as they are told."""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes import ROOT, end
from contracts import events as ev
from contracts import ids
from contracts.positions import START, entry_key
from contracts.store import Store, keys
from contracts.store.attempts import Attempt, Offer, read_offer
from contracts.store.clients import read_hash
from contracts.store.jobs import Limits
from contracts.store.write import Write

POOL, MODEL = "default", "noop@1"
LEASE_S = 3.0
TENANTS = 100
_SETTINGS = {
    "HEADRACE_WORKER__LEASE_S": "3600", "HEADRACE_WORKER__HEARTBEAT_S": "1800",
    "HEADRACE_SCHEDULER__LEASE_S": str(LEASE_S),
    "HEADRACE_PIPELINES": str(ROOT / "benchmarks/pipelines/pipelines.toml"),
}  # fmt: skip


@contextlib.contextmanager
def scheduler(url: str, profile: Path | None = None, told: bool = False) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a scheduler process.

    Args:
        profile: where cProfile writes when it is told to stop.
        told: its log can be read from the process's stderr.
    """
    env = os.environ | _SETTINGS | {"HEADRACE_REDIS__URL": url, "HEADRACE_LOG__LEVEL": "info" if told else "warning"}
    what = ["services.scheduler"] if profile is None else ["benchmarks.profiled", str(profile)]
    command = [sys.executable, "-m", *what]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE if told else None)
    try:
        yield process
    finally:
        end(process)


async def admit(store: Store, count: int) -> None:
    """Make `count` jobs of TENANTS tenants durable."""

    async def one(number: int) -> None:
        job_id = ids.mint_job_id(1_764_457_200_000 + number, random.getrandbits(ids.RANDOM_BITS), "aa")
        tenant_id = f"t_{number % TENANTS}"
        event = ev.JobCreated(tenant_id=tenant_id, model=MODEL, timeout_ms=600_000, body_bytes=2, user_digest="u")
        await store.jobs.admit(POOL, Write(job_id, (event,)), b"{}", tenant_id, Limits(tenant_jobs=10**7))

    for first in range(0, count, 1_000):
        await asyncio.gather(*(one(number) for number in range(first, min(count, first + 1_000))))


async def folded(store: Store) -> None:
    """Wait until the leader has folded the log to its present end: its cursor says so."""
    end = await store.end_of_log(POOL)
    while True:
        cursor = await read_hash(store.client, keys.meta(POOL))
        if entry_key(cursor.get("cursor:scheduler", START)) >= entry_key(end):
            return
        await asyncio.sleep(0.02)


class Crew:
    """One worker with many slots of a device each; it starts and completes what it is offered."""

    def __init__(self, store: Store, slots: int) -> None:
        self._store, self.id = store, ids.mint_worker_id(1, random.getrandbits(ids.RANDOM_BITS))
        self._slots = tuple(ev.SlotInfo(index=i, device=f"cpu-h-0-{i}", kind="cpu", bytes=0) for i in range(slots))
        self._reader = store.work(POOL, self.id)
        self.offers: list[tuple[str, Offer]] = []
        self.done_count = 0

    async def register(self) -> None:
        event = ev.WorkerRegistered(worker_id=self.id, host="h", pid=1, slots=self._slots, models=(MODEL,))
        await self._store.attempts.register(POOL, event, {})

    async def look(self) -> None:
        """Take in what was offered."""
        for message in await self._reader.read(count=500, block_ms=200):
            if message.fields and message.fields[b"kind"] == b"offer":
                self.offers.append((message.position, read_offer(message.fields[b"d"])))

    async def finish_all(self, count: int) -> None:
        """Serve until `count` jobs are done."""
        while self.done_count < count:
            await self.look()
            offers, self.offers = self.offers, []
            await asyncio.gather(*(self._serve(position, offer) for position, offer in offers))

    async def _serve(self, position: str, offer: Offer) -> None:
        attempt = Attempt(POOL, self.id, offer, offer.fence + 1, offer.attempt + 1)
        started = ev.JobStarted(
            worker_id=self.id, offer_id=offer.offer_id, slot=offer.slot, device="d", attempt=attempt.attempt
        )
        answer = await self._store.attempts.start(attempt, started, [position])
        if answer.word == "APPLIED":
            ends = [ev.JobDeviceReleased(gpu_ms=5), ev.JobCompleted(attempt=attempt.attempt)]
            await self._store.attempts.emit(attempt, ends, closes=True)
            self.done_count += 1


def monotonic_s() -> float:
    """Return monotonic time in seconds."""
    return time.monotonic()

"""Waiting for the end of a job without asking for it again and again: one reader of the log serves all who wait.

Promises: a wait ends with the job or with its time, whatever happens to the store meanwhile; at most MAX_WAITING
requests wait at once, others are answered at once. The reader runs only while somebody waits.
"""

import asyncio
import random
from collections import defaultdict

from contracts.errors import StoreUnavailable, Unavailable
from contracts.job import TERMINAL
from contracts.store import Store
from contracts.store.log import Poison, pause
from contracts.store.store import LogTail

MAX_WAITING = 1_000
BLOCK_MS = 500
_ENDINGS = frozenset({"job.completed", "job.failed", "job.cancelled", "job.expired"})

Waiters = dict[str, set["asyncio.Future[bool]"]]


class JobWatch:
    """Who waits for which job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, Waiters] = defaultdict(dict)
        self._readers: dict[str, LogTail] = {}
        self._tails: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()

    async def wait(self, pool: str, job_id: str, wait_s: float) -> bool:
        """Wait up to `wait_s`; True when the job has ended or is unknown. After `aclose` nobody waits."""
        waiters = self._waiting[pool]
        if self._stop.is_set() or sum(len(each) for each in waiters.values()) >= MAX_WAITING:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # Registered before the job is looked at: it may end in between, and then the reader has seen it.
        waiters.setdefault(job_id, set()).add(future)
        try:
            async with asyncio.timeout(wait_s):
                history = await self._store.jobs.history(pool, job_id, limit=0)
                if history is None or history.state.status in TERMINAL:
                    return True
                self._follow(pool, history.state.position)
                return await future
        except (TimeoutError, StoreUnavailable):
            return False
        finally:
            waiters[job_id].discard(future)
            if not waiters[job_id]:
                del waiters[job_id]

    async def aclose(self) -> None:
        """Stop the readers; whoever still waits is answered that the job has not ended yet."""
        self._stop.set()
        for waiters in self._waiting.values():
            for group in waiters.values():
                _wake(group, has_ended=False)
        await asyncio.gather(*self._tails.values(), return_exceptions=True)

    def _follow(self, pool: str, position: str) -> None:
        tail = self._tails.get(pool)
        if tail is not None and not tail.done():
            return
        reader = self._readers.get(pool)
        if reader is None:
            reader = self._readers[pool] = self._store.tail(pool, position)
        reader.position = position
        self._tails[pool] = asyncio.create_task(self._tail(reader, self._waiting[pool]))

    async def _tail(self, reader: LogTail, waiters: Waiters) -> None:
        failures = 0
        while waiters and not self._stop.is_set():
            try:
                entries = await reader.read(count=500, block_ms=BLOCK_MS)
            except Unavailable:
                failures += 1
                await pause(failures, self._stop, random.random())
                continue
            failures = 0
            for entry in entries:
                if not isinstance(entry, Poison) and entry.type in _ENDINGS:
                    _wake(waiters.get(entry.subject, set()), has_ended=True)


def _wake(futures: "set[asyncio.Future[bool]]", *, has_ended: bool) -> None:
    for future in futures:
        if not future.done():
            future.set_result(has_ended)

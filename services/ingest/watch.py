"""Waiting for the end of a job without asking for it again and again: the reader that feeds the live streams tells.

Promises: a wait ends with the job or with its time, whatever happens to the store meanwhile; at most MAX_WAITING
requests wait at once, others are answered at once.
"""

import asyncio

from contracts.errors import StoreUnavailable
from contracts.job import TERMINAL
from contracts.store import Store
from services.ingest.live.feed import Listener
from services.ingest.live.hub import Hub

MAX_WAITING = 1_000
_ENDINGS = frozenset({"job.completed", "job.failed", "job.cancelled", "job.expired"})


class JobWatch:
    """Who waits for which job."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store, self._hub = store, hub
        self.waiting = 0

    async def wait(self, pool: str, job_id: str, wait_s: float) -> bool:
        """Wait up to `wait_s`; True when the job has ended or is unknown. Once the hub is closed nobody waits."""
        if self.waiting >= MAX_WAITING:
            return False
        self.waiting += 1
        feed = self._hub.feed(pool)
        try:
            # Listening before the job is looked at: it may end in between, and then the feed has told.
            with feed.follow(job_id) as listener:
                async with asyncio.timeout(wait_s):
                    while not listener.is_over:
                        await feed.begun()
                        if await self._has_ended(pool, job_id) or await _hears_the_end(listener):
                            return True
                        listener.begin_again()
        except (TimeoutError, StoreUnavailable):
            return False
        finally:
            self.waiting -= 1
        return False

    async def _has_ended(self, pool: str, job_id: str) -> bool:
        history = await self._store.jobs.history(pool, job_id, limit=0)
        return history is None or history.state.status in TERMINAL


async def _hears_the_end(listener: Listener) -> bool:
    """Wait for the end of the job; False when the process ends, or nobody knows what happened meanwhile."""
    while not (listener.is_over or listener.is_slow or listener.is_lost):
        await listener.wait(60)
        if any(entry.type in _ENDINGS for entry in listener.take()):
            return True
    return False

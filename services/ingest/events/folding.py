"""Folds the log of a pool up to an instant, however long it is.

Promises: memory grows with what was open then, not with the log; other requests are served meanwhile; who asks for a
later instant than the last time goes on from there; few wait for their turn, others are told to come back. The time it
takes grows with the log.
"""

import asyncio
from collections.abc import Sequence

from contracts.job import JobStatus
from contracts.positions import entry_key
from contracts.recent import Recent
from contracts.store.log import Poison
from contracts.wire import Entry
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.events.query import Key
from services.ingest.events.scan import Ground
from services.ingest.events.standing import Open, Standing

STEP = 1_000
MOST_KEPT = 8
MOST_AT_ONCE = 2
MOST_ASKED = 10  # of these and of those that wait for them
AGAIN_S = 5


class Folder:
    """One for each process."""

    def __init__(self) -> None:
        self._kept: Recent[tuple[str, int, str | None], Standing] = Recent(MOST_KEPT)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._asked = 0

    async def fold(self, ground: Ground, tenant_id: str | None, end: Key | None) -> Standing:
        """Return how the jobs of a tenant, or of all, stood before `end`; None: now.

        Raises Problem `quota_exceeded` where too many ask at once, Unavailable, Corrupt.
        """
        if self._asked >= MOST_ASKED:
            told = f"{MOST_ASKED} are asking for the past here already"
            raise Problem("quota_exceeded", told, retry_after_s=AGAIN_S, extensions={POLICIES: ["states"]})
        key = (ground.place.pool, ground.place.epoch, tenant_id)
        kept = self._kept.get(key)
        goes_on = kept is not None and (end is None or entry_key(kept.position) < end)
        standing = kept.copy() if kept is not None and goes_on else Standing(tenant_id)
        self._asked += 1
        try:
            async with self._turns:
                await _fold_on(ground, standing, end)
        finally:
            self._asked -= 1
        if standing.position:
            self._kept.put(key, standing)
        return standing


async def _fold_on(ground: Ground, standing: Standing, end: Key | None) -> None:
    async for found in ground.archive.entries(ground.place.pool, standing.position or None, count=STEP):
        inside = [each for each in found if end is None or entry_key(each.position) < end]
        again = await _again(ground, standing.tenant_id, inside)
        for entry in inside:
            if isinstance(entry, Entry):
                standing.fold(entry, again)
        if len(inside) < len(found):
            return
        await asyncio.sleep(0)


async def _again(ground: Ground, tenant_id: str | None, entries: Sequence[Entry | Poison]) -> dict[str, Open]:
    """Return the tenant's jobs that begin another run: the fold does not keep what has ended."""
    retried = [entry for entry in entries if isinstance(entry, Entry) and entry.type == "job.retried"]
    if not retried:
        return {}
    owners = await ground.jobs.owners(retried, (), with_models=True)
    return {
        job_id: Open(owner.tenant_id, owner.model or "", JobStatus.QUEUED)
        for job_id, owner in owners.items()
        if tenant_id in (None, owner.tenant_id)
    }

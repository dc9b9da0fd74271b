"""Finishing what was asked to be erased, and removing files whose time is over.

Promises: may be killed anywhere and repeated; what waits is ended only when nothing of it is left; a store of files
that is away puts an erasure off, and nothing else.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from dataclasses import replace

from contracts.archive import Archive
from contracts.artifacts import Shelf
from contracts.erasure import Erasure, read_erasure, remove, remove_files, sent_files
from contracts.events import ArtifactExpired
from contracts.ids import job_of
from contracts.store import Store

MOST = 200  # in one pass over the archive
MOST_EXPIRED = 1_000  # files removed after one look at all of them


class PoolEraser:
    """For one pool. `shelf`: the files of jobs."""

    def __init__(self, store: Store, archive: Archive, shelf: Shelf, pool: str) -> None:
        self._store, self._archive, self._shelf, self._pool = store, archive, shelf, pool

    async def waiting(self) -> dict[str, Erasure]:
        """Return what is to be erased now. Raises StoreUnavailable, Corrupt."""
        found = await self._store.erasing.waiting(self._pool, MOST)
        return {job_id: read_erasure(job_id, left) for job_id, left in list(found.items())[:MOST]}

    async def remove(self, erasures: Mapping[str, Erasure]) -> AsyncIterator[Set[str]]:
        """Remove all that is left of these; gives a chance to keep the lead after each step, and the jobs whose bodies
        are written back in the next one. Raises Unavailable.
        """
        run = self._archive.run
        for erasure in erasures.values():
            await remove(self._store, self._shelf, run, self._pool, erasure)
            yield frozenset()
        async for found, kept in self._archive.erase_bodies(self._pool, erasures.keys()):
            for (
                job_id,
                body,
            ) in found.items():  # of a forgotten job only its body here says which files were sent for it
                erasure = replace(erasures[job_id], files=sent_files(body))
                await remove_files(self._store, self._shelf, run, self._pool, erasure)
            yield kept

    async def again(self, job_ids: Set[str]) -> frozenset[str]:
        """Let those of these that are erased be removed once more, by whoever leads; returns those to ask about again.

        For who wrote their bodies without being sure to lead: put first, look then. Raises Unavailable.
        """
        left = await self._archive.run(self._erased, sorted(job_ids))
        return await self._store.erasing.again(self._pool, left) if left else frozenset()

    def _erased(self, job_ids: Sequence[str]) -> dict[str, str]:
        marks = ((job_id, self._shelf.erased(self._pool, job_id)) for job_id in job_ids)
        found = (Erasure(job_id, mark.tenant_id, mark.erased_ms) for job_id, mark in marks if mark is not None)
        return {erasure.job_id: erasure.encode() for erasure in found}


class PoolSweeper:
    """Removes the files of one pool whose time is over. Beside the archive's own work: a look may take minutes."""

    def __init__(self, store: Store, archive: Archive, shelf: Shelf, pool: str, keep_ms: int) -> None:
        self._store, self._archive, self._shelf, self._pool, self._keep_ms = store, archive, shelf, pool, keep_ms

    async def sweep(self, now_ms: int, leads: Callable[[], bool]) -> int:
        """Remove them while this process `leads`; returns how many. Raises Unavailable."""
        count, run = 0, self._archive.run
        expired = await run(self._shelf.outlived, self._pool, now_ms - self._keep_ms, now_ms, MOST_EXPIRED)
        for record in expired:
            if not leads():
                break
            event = ArtifactExpired(artifact_id=record.id, job_id=job_of(record.id), tenant_id=record.tenant_id)
            await self._store.note(self._pool, record.id, event, f"expired {record.id}")
            await run(self._shelf.remove, self._pool, record)
            count += 1
        return count

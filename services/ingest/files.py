"""Stored files as ingest asks for them: found by id and tenant, in threads of their own.

Promises: a foreign file is found as little as one that is not there; a store that hangs holds these threads and nothing
else of the process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import structlog

from contracts.artifacts import ArtifactRecord, Content, Shelf
from contracts.ids import job_of
from contracts.telemetry import Logger
from contracts.threads import Threads
from services.ingest.edge.problems import Problem

THREADS = 32
_PREVIEW = "_preview"
P = ParamSpec("P")
T = TypeVar("T")
log: Logger = structlog.get_logger(service="ingest")


@dataclass(frozen=True, slots=True)
class Found:
    """A record that may be shown, and the pool whose folder it lies in."""

    pool: str
    record: ArtifactRecord

    @property
    def is_preview(self) -> bool:
        """The one preview of a job is replaced while it is watched; its record may be a step behind."""
        return self.record.id.endswith(_PREVIEW)


class Files:
    """The shelf behind threads. `pool_of` gives the name of the pool that an id belongs to."""

    def __init__(self, shelf: Shelf, pool_of: Callable[[str], str | None]) -> None:
        self.shelf = shelf
        self._pool_of = pool_of
        self._threads = Threads(THREADS, "files")

    async def find(self, artifact_id: str, tenant_id: str | None) -> Found | None:
        """Return a file of this tenant (None: whoever's it is), expired or not. Raises Problem."""
        pool = self._pool_of(artifact_id)
        if pool is None or not artifact_id.startswith("art_"):
            return None
        record = await self.ask(self.shelf.find, pool, artifact_id)
        if record is None or (tenant_id is not None and record.tenant_id != tenant_id):
            return None
        return Found(pool, record)

    async def was_erased(self, artifact_id: str, tenant_id: str | None) -> bool:
        """Whether an id belongs to an erased job of this tenant (None: whoever's it was). Raises Problem."""
        pool = self._pool_of(artifact_id)
        if pool is None or not artifact_id.startswith("art_"):
            return False
        mark = await self.ask(self.shelf.erased, pool, job_of(artifact_id))
        return mark is not None and tenant_id in (None, mark.tenant_id)

    async def open(self, found: Found, start: int = 0, end: int | None = None) -> Content | None:
        """Open the content, or a part of it. Raises Problem."""
        return await self.ask(self.shelf.open, found.pool, found.record, start, end)

    async def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call of the store or of our own disk. Raises Problem `files_unavailable`."""
        try:
            return await self._threads.run(call, *args, **kwargs)
        except OSError as error:  # StoreAway, or our own disk, on which bytes are checked: full, or not to be written
            raise unavailable(error) from None


def unavailable(error: OSError) -> Problem:
    """Return what a caller is told: nothing of where we wanted to write."""
    log.warning("files_unavailable", detail=error.strerror or type(error).__name__)
    return Problem("files_unavailable")

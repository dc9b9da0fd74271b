"""Erasing one job: it is said in the log, its body goes in the same call, and then everything else that is left of it.

Promises: from the moment that it is said, nothing shows or sends what the job was asked or answered; what cannot be
removed now is removed by the archivist; a repeat removes what is left, and says nothing again. A job that has not ended
is refused. Of a forgotten job, what the archive and the store of files still have goes the same way.
"""

from dataclasses import dataclass, replace

import structlog

from contracts import events as ev
from contracts.erasure import Erasure, Removed, read_erasure, remove, sent_files
from contracts.errors import HeadraceError, StoreUnavailable
from contracts.job import TERMINAL
from contracts.positions import entry_ms
from contracts.store.jobs import History
from contracts.store.store import PoolMeta
from contracts.store.words import Word
from contracts.store.write import JobGuard, Write
from contracts.telemetry import Logger
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.handlers.read import job_not_found
from services.ingest.minting import Mint

TRIES = 5
log: Logger = structlog.get_logger(service="ingest")


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose jobs are meant (None: anybody's), who asks, and why."""

    tenant_id: str | None
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Erased:
    """`removed`: by this call, None when it could not; `is_new`: this call said it; `is_complete`: nothing is left."""

    job_id: str
    at_ms: int
    removed: Removed | None
    is_new: bool
    is_complete: bool


class Eraser:
    """Erases jobs, one by one."""

    def __init__(self, context: Context, events: EventReader) -> None:
        self._context, self._events = context, events
        self._mint = Mint(context.now_ms)

    async def erase(self, job_id: str, asked: Asked) -> Erased:
        """Erase a job. Raises Problem `job_not_found`, `job_not_ended`, StoreUnavailable."""
        meta = self._context.pool_of(job_id)
        if meta is None:
            raise job_not_found()
        for _ in range(TRIES):
            history = await self._context.within(self._context.store.jobs.history(meta.name, job_id, with_body=True))
            if history is None:
                return await self._erase_forgotten(meta, job_id, asked)
            if asked.tenant_id not in (None, history.state.tenant_id):
                raise job_not_found()
            if (erased := await self._erase(meta, history, asked)) is not None:
                return erased
        raise StoreUnavailable(f"{job_id} changes too fast to be erased")

    async def is_open(self, job_id: str) -> bool:
        """Whether a job has not ended."""
        meta = self._context.pool_of(job_id)
        if meta is None:
            return False
        history = await self._context.within(self._context.store.jobs.history(meta.name, job_id, limit=0))
        return history is not None and history.state.status not in TERMINAL

    async def _erase(self, meta: PoolMeta, history: History, asked: Asked) -> Erased | None:
        """Erase a job that is kept; None when it has moved on meanwhile."""
        state = history.state
        if state.status not in TERMINAL:
            raise Problem("job_not_ended", f"The job is {state.status}: cancel it first")
        if state.erased_ms is not None:
            return await self._go_on(meta, state.id, state.tenant_id, state.erased_ms)
        created = history.entries[0].event() if history.complete else None
        key_hash = created.key_hash if isinstance(created, ev.JobCreated) else None
        now_ms = self._context.now_ms()
        erasure = Erasure(state.id, state.tenant_id, now_ms, key_hash, sent_files(history.body), state.done_ms)
        write = Write(
            state.id,
            (ev.JobErased(by=asked.by, reason=asked.reason),),
            fence=state.fence,
            guard=JobGuard(states=tuple(TERMINAL), sequence=state.sequence),
            erases=erasure.encode(),
        )
        reply = await self._context.within(self._context.store.jobs.append(meta.name, write, self._mint.token()))
        if reply.word is not Word.APPLIED:
            return None
        return await self._remove(meta, replace(erasure, at_ms=entry_ms(reply.position)), is_new=True)

    async def _erase_forgotten(self, meta: PoolMeta, job_id: str, asked: Asked) -> Erased:
        created = await self._events.created(job_id)
        if created is None or asked.tenant_id not in (None, created.tenant_id):
            raise job_not_found()
        tenant_id = created.tenant_id
        mark = await self._context.files.ask(self._context.shelf.erased, meta.name, job_id)
        if mark is not None:
            return await self._go_on(meta, job_id, tenant_id, mark.erased_ms)
        erasure = Erasure(job_id, tenant_id, self._context.now_ms(), created.key_hash)
        event = ev.ArchiveErased(job_id=job_id, tenant_id=tenant_id, by=asked.by, reason=asked.reason)
        calls = self._context.store.erasing
        reply = await self._context.within(calls.erase_forgotten(meta.name, event, erasure.encode()))
        return await self._remove(meta, erasure, is_new=bool(reply.position))

    async def _go_on(self, meta: PoolMeta, job_id: str, tenant_id: str, at_ms: int) -> Erased:
        """Remove what is left of a job of which it was said before."""
        left = await self._context.within(self._context.store.erasing.left(meta.name, job_id))
        erasure = Erasure(job_id, tenant_id, at_ms) if left is None else read_erasure(job_id, left)
        return await self._remove(meta, erasure, is_new=False)

    async def _remove(self, meta: PoolMeta, erasure: Erasure, *, is_new: bool) -> Erased:
        context = self._context
        try:
            removed = await remove(context.store, context.shelf, context.files.ask, meta.name, erasure)
            is_complete = await self._is_complete(meta.name, erasure.job_id)
        except (HeadraceError, Problem) as error:
            log.warning("erasure_left_to_archivist", job_id=erasure.job_id, reason=str(error))
            return Erased(erasure.job_id, erasure.at_ms, None, is_new, False)
        return Erased(erasure.job_id, erasure.at_ms, removed, is_new, is_complete)

    async def _is_complete(self, pool: str, job_id: str) -> bool:
        store = self._context.store
        if await store.archive.manifest(pool) is None:  # nothing lies in an archive, and nobody else comes
            return await store.erasing.end(pool, "", [job_id])
        return await store.erasing.left(pool, job_id) is None

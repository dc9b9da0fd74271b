"""`DELETE /v1/jobs/{id}`, and all jobs of one end user: `POST /v1/jobs/erase`; for operators below `/admin/v1`.

Promises: a call about a user looks at so many events and says how to go on; whatever was interrupted may be called
again from the beginning; jobs that have not ended are counted and left alone; a dry run writes nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from contracts import events as ev
from contracts.admin_api import AdminJobsErase
from contracts.api import JobsErase
from contracts.errors import StoreUnavailable
from contracts.events import JobCreated
from contracts.telemetry import Logger
from contracts.times import instant
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.erasing import Asked, Erased, Eraser
from services.ingest.events.finding import EventReader
from services.ingest.events.query import EventQuery
from services.ingest.events.scan import MAX_SCANNED
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.bodies import read_as
from services.ingest.handlers.configured import need_reason, read_reason
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

MOST_ERASED = 100  # in one call
AT_ONCE = 10
SAMPLE = 10

log: Logger = structlog.get_logger(service="ingest")


@dataclass(slots=True)
class _Tally:
    """What one call did."""

    matched: list[str] = field(default_factory=list)
    erased: int = 0
    already: int = 0
    open: int = 0
    pending: int = 0
    failures: list[JsonObject] = field(default_factory=list)

    def take(self, job_id: str, outcome: Erased | BaseException) -> None:
        match outcome:
            case Erased():
                self.erased += outcome.is_new
                self.already += not outcome.is_new
                self.pending += not outcome.is_complete
            case Problem(code="job_not_ended"):
                self.open += 1
            case Problem(code=code) | StoreUnavailable(code=code):
                self.failures.append({"id": job_id, "code": code})
            case _:
                raise outcome

    def view(self, operation_id: str, cursor: str | None, *, is_dry: bool) -> JsonObject:
        """Return the operation as JSON."""
        return {
            "id": operation_id,
            "object": "operation",
            "state": "completed" if cursor is None else "in_progress",
            "dryRun": is_dry,
            "matched": len(self.matched),
            "erased": self.erased,
            "already": self.already,
            "open": self.open,
            "pending": self.pending,
            "failed": len(self.failures),
            "sample": self.matched[:SAMPLE],
            "failures": self.failures,
            "hasMore": cursor is not None,
            "nextCursor": cursor,
        }


class EraseHandlers:
    """Erases jobs, for their tenant and for the operator."""

    def __init__(self, context: Context, events: EventReader) -> None:
        self._context, self._events = context, events
        self._eraser = Eraser(context, events)
        self._mint = Mint(context.now_ms)

    async def erase_job(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase a job of the caller: 200 when nothing is left, 202 while the archivist removes the rest."""
        check_query(request, frozenset({"reason"}))
        return await self._erase_one(request.match_info["id"], caller, caller.tenant_id, read_reason(request))

    async def admin_erase_job(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase anybody's job."""
        check_query(request, frozenset({"reason"}))
        reason, job_id = need_reason(request), request.match_info["job"]
        await self._sign(ev.AuditAction(action="jobs.erase", target=job_id[:64], **caller.signed(reason)))
        return await self._erase_one(job_id, caller, None, reason)

    async def erase_user(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase the jobs of one end user of the caller."""
        wanted = await read_as(self._context, request, JobsErase)
        return await self._erase_many(wanted, caller, caller.tenant_id)

    async def admin_erase_user(self, request: web.Request, caller: Caller) -> web.Response:
        """Erase the jobs of one end user of a tenant."""
        wanted = await read_as(self._context, request, AdminJobsErase)
        if wanted.cursor is None and not wanted.dry_run:
            user = f"{wanted.tenant_id} user {self._events.digest_of_user(wanted.user_id)}"
            await self._sign(ev.AuditAction(action="jobs.erase", target=user, **caller.signed(wanted.reason)))
        return await self._erase_many(wanted, caller, wanted.tenant_id)

    async def _sign(self, event: ev.AuditAction) -> None:
        pool = self._context.pool(next(iter(self._context.pools), ""))
        await self._context.within(self._context.store.note(pool.name, "erasure", event, self._mint.token()))

    async def _erase_one(
        self, job_id: str, caller: Caller, tenant_id: str | None, reason: str
    ) -> web.Response:  # fmt: skip
        done = await self._eraser.erase(job_id, Asked(tenant_id, f"key/{caller.key_id}", reason))
        counts = {"is_new": done.is_new, "is_complete": done.is_complete}
        log.info("job_erased", job_id=done.job_id, by=caller.key_id, **counts)
        return json_answer(erasure_view(done), 200 if done.is_complete else 202)

    async def _erase_many(self, wanted: JobsErase, caller: Caller, tenant_id: str) -> web.Response:
        digest = self._events.digest_of_user(wanted.user_id)
        query = EventQuery(tenant_id, user_digest=digest, types=(JobCreated.TYPE,))
        scan, tally = self._events.scan(query, wanted.cursor), _Tally()
        asked = Asked(tenant_id, f"key/{caller.key_id}", wanted.reason)
        while not scan.is_over and len(tally.matched) < MOST_ERASED and scan.scanned < MAX_SCANNED:
            views = await scan.step(AT_ONCE, MAX_SCANNED - scan.scanned)
            await self._take([str(view["subject"]) for view in views], asked, tally, is_dry=wanted.dry_run)
        operation_id = f"op_{self._mint.token()}"
        cursor = None if scan.is_over else self._events.cursor(query, scan)
        view = tally.view(operation_id, cursor, is_dry=wanted.dry_run)
        counts = {name: view[name] for name in ("matched", "erased", "already", "open", "pending", "failed")}
        log.info("jobs_of_user_erased", operation_id=operation_id, by=caller.key_id, dry_run=wanted.dry_run, **counts)
        return json_answer(view)

    async def _take(self, job_ids: Sequence[str], asked: Asked, tally: _Tally, *, is_dry: bool) -> None:
        tally.matched += job_ids
        if is_dry:
            tally.open += sum(await asyncio.gather(*map(self._eraser.is_open, job_ids)))
            return
        outcomes = await asyncio.gather(
            *(self._eraser.erase(job_id, asked) for job_id in job_ids), return_exceptions=True
        )
        if job_ids and all(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
            raise StoreUnavailable("none of these could be erased")  # the rest need not be tried
        for job_id, outcome in zip(job_ids, outcomes, strict=True):
            tally.take(job_id, outcome)


def erasure_view(done: Erased) -> JsonObject:
    """Return what was erased as JSON. `removed`: by this call; null where it is left to the archivist."""
    removed = done.removed
    return {
        "jobId": done.job_id,
        "object": "erasure",
        "erasedAt": instant(done.at_ms),
        "complete": done.is_complete,
        "removed": None
        if removed is None
        else {"deliveries": removed.deliveries, "artifacts": removed.artifacts, "files": removed.files},
    }

"""`GET /v1/jobs`: the tenant's jobs, newest first, through filters, page by page.

Promises: a page costs at most MAX_SCANNED jobs looked at and about MAX_PAGE_BYTES; when that is not enough to fill it,
it comes shorter with a cursor that goes on from there. Jobs that arrive meanwhile never shift a page.
"""

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.filters import METADATA, NAMES, JobFilter, read_filter
from services.ingest.handlers.answers import check_query, page_answer, read_limit
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.tenancy import Caller

MAX_SCANNED = 1_000
STEP = 100
BODIES_AT_ONCE = 10  # a body may have a megabyte
MAX_PAGE_BYTES = 4 << 20


@dataclass(slots=True)
class _Page:
    """A page being filled: `below` is the last id looked at."""

    limit: int
    below: str
    views: list[object] = field(default_factory=list)
    scanned: int = 0
    bytes: int = 0
    is_last: bool = False

    @property
    def room(self) -> int:
        """How many jobs still fit; a page of huge bodies is full before its limit."""
        return 0 if self.bytes > MAX_PAGE_BYTES else self.limit - len(self.views)


class JobListHandler:
    """Reads lists."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context = context
        self._reader = reader

    async def list_jobs(self, request: web.Request, caller: Caller) -> web.Response:
        """List the tenant's jobs."""
        check_query(request, NAMES, prefix=METADATA)
        wanted = read_filter(list(request.query.items()))
        question = f"{caller.tenant_id}\njobs\n{wanted.canonical}"
        page = _Page(read_limit(request), self._place(request, question) or wanted.first_below())
        while page.room and page.scanned < MAX_SCANNED and not page.is_last:
            await self._fill(page, caller, wanted)
        cursor = None if page.is_last else seal(self._context.secret("cursors"), question, page.below)
        return page_answer(request, page.views, cursor)

    async def _fill(self, page: _Page, caller: Caller, wanted: JobFilter) -> None:
        """Look at the next ids; stops in the middle of them when the page is full."""
        step = min(STEP, page.room + 1)
        ids = await self._reader.ids(caller, wanted, page.below, step)
        candidates = await asyncio.gather(*(self._reader.find(caller, job_id) for job_id in ids))
        fitting = {shown.state.id: shown for shown in candidates if shown and wanted.fits_state(shown.state)}
        views = await self._views(wanted, fitting)
        for job_id in ids:
            if not page.room:
                return
            if wanted.ends_at(job_id):
                page.is_last = True
                return
            page.below = job_id
            page.scanned += 1
            if job_id in views:
                page.views.append(views[job_id])
                page.bytes += fitting[job_id].state.body_bytes
        page.is_last = len(ids) < step

    async def _views(self, wanted: JobFilter, fitting: dict[str, Shown]) -> dict[str, object]:
        found: dict[str, object] = {}
        waiting = list(fitting.values())
        for at in range(0, len(waiting), BODIES_AT_ONCE):
            group = waiting[at : at + BODIES_AT_ONCE]
            for shown, outcome in zip(
                group, await asyncio.gather(*map(self._reader.details, group), return_exceptions=True), strict=True
            ):
                if isinstance(outcome, Problem):
                    continue  # forgotten while the page was read
                if isinstance(outcome, BaseException):
                    raise outcome
                if wanted.fits_spec(outcome.lines.spec):
                    found[shown.state.id] = self._reader.show(outcome)
        return found

    def _place(self, request: web.Request, question: str) -> str:
        cursor = request.query.get("cursor")
        if cursor is None:
            return ""
        try:
            return unseal(self._context.secret("cursors"), question, cursor)
        except BadCursor:
            raise Problem("bad_cursor") from None

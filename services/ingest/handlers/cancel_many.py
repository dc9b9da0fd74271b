"""`POST /v1/jobs/cancel`: many jobs at once, by their ids or by a filter, page by page.

Promises: a call looks at MAX_SCANNED jobs at most and says how to go on; what it did is done when it answers, nothing
goes on behind it; each job is cancelled as it would be alone, so a repeat is harmless. A job that has left the filter
meanwhile (it was to be cancelled while queued, and has started) is spared; jobs that arrive meanwhile are not met. A
dry run writes nothing.
"""

import asyncio
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from contracts.api import JobsCancel
from contracts.errors import StoreUnavailable
from contracts.job import TERMINAL
from contracts.telemetry import Logger
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.filters import JobFilter, filter_of
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.bodies import read_as
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject, read_lines

MAX_SCANNED = 1_000
STEP = 50
BODIES_AT_ONCE = 10  # a body may have a megabyte
SAMPLE = 10
_ANY = JobFilter()

log: Logger = structlog.get_logger(service="ingest")


@dataclass(slots=True)
class _Tally:
    """What one call did. `below`: the last id looked at, None when there is no other."""

    matched: list[str] = field(default_factory=list)
    cancelled: int = 0
    requested: int = 0
    skipped: int = 0
    failures: list[JsonObject] = field(default_factory=list)
    below: str | None = None

    def fail(self, job_id: str, code: str) -> None:
        self.failures.append({"id": job_id, "code": code})

    def view(self, operation_id: str, cursor: str | None, *, is_dry: bool) -> JsonObject:
        """Return the operation as JSON."""
        return {
            "id": operation_id,
            "object": "operation",
            "state": "completed" if cursor is None else "in_progress",
            "dryRun": is_dry,
            "matched": len(self.matched),
            "cancelled": self.cancelled,
            "requested": self.requested,
            "skipped": self.skipped,
            "failed": len(self.failures),
            "sample": self.matched[:SAMPLE],
            "failures": self.failures,
            "hasMore": cursor is not None,
            "nextCursor": cursor,
        }


class CancelManyHandler:
    """Cancels what a body asks for."""

    def __init__(self, context: Context, reader: JobReader, canceller: Canceller) -> None:
        self._context = context
        self._reader = reader
        self._canceller = canceller
        self._mint = Mint(context.now_ms)

    async def cancel_jobs(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel one page of jobs, or count it; the answer is the operation so far."""
        asked = await read_as(self._context, request, JobsCancel)
        tally = _Tally()
        if asked.filter is None:
            operation_id, cursor = f"op_{self._mint.token()}", None
            await self._by_ids(asked, caller, tally)
        else:
            wanted = filter_of(asked.filter)
            question = f"{caller.tenant_id}\ncancel\n{asked.dry_run}\n{wanted.canonical}"
            operation_id, below = self._resume(asked.cursor, question) or (f"op_{self._mint.token()}", "")
            await self._by_filter(wanted, below or wanted.first_below(), asked, caller, tally)
            place = f"{operation_id} {tally.below}"
            cursor = None if tally.below is None else seal(self._context.secret("cursors"), question, place)
        view = tally.view(operation_id, cursor, is_dry=asked.dry_run)
        if not asked.dry_run:
            counts = {name: view[name] for name in ("cancelled", "requested", "skipped", "failed")}
            log.info("jobs_cancelled", operation_id=operation_id, by=caller.key_id, **counts)
        return json_answer(view)

    async def _by_ids(self, asked: JobsCancel, caller: Caller, tally: _Tally) -> None:
        ids = list(dict.fromkeys(asked.ids or ()))
        for at in range(0, len(ids), STEP):
            group = ids[at : at + STEP]
            found = await asyncio.gather(*(self._reader.find(caller, job_id) for job_id in group))
            for job_id, shown in zip(group, found, strict=True):
                if shown is None:
                    tally.fail(job_id, "job_not_found")
            await self._take([shown for shown in found if shown is not None], asked, caller, tally, _ANY)

    async def _by_filter(
        self, wanted: JobFilter, below: str, asked: JobsCancel, caller: Caller, tally: _Tally
    ) -> None:  # fmt: skip
        for _ in range(MAX_SCANNED // STEP):
            ids = await self._reader.ids(caller, wanted, below, STEP)
            if ids:
                below = ids[-1]
                await self._take(await self._fitting(wanted, ids, caller), asked, caller, tally, wanted)
            if len(ids) < STEP or wanted.ends_at(below):
                return
        tally.below = below

    async def _fitting(self, wanted: JobFilter, ids: list[str], caller: Caller) -> list[Shown]:
        found = await asyncio.gather(*(self._reader.find(caller, job_id) for job_id in ids))
        fitting = [shown for shown in found if shown is not None and wanted.fits_state(shown.state)]
        if not wanted.asks_spec:
            return fitting
        room = asyncio.Semaphore(BODIES_AT_ONCE)
        verdicts = await asyncio.gather(*(self._fits_spec(wanted, shown, room) for shown in fitting))
        return [shown for shown, fits in zip(fitting, verdicts, strict=True) if fits]

    async def _fits_spec(self, wanted: JobFilter, shown: Shown, room: asyncio.Semaphore) -> bool:
        try:
            async with room:
                return wanted.fits_spec(read_lines((await self._reader.history(shown, 0)).body).spec)
        except Problem:
            return False  # forgotten meanwhile

    async def _take(
        self, jobs: list[Shown], asked: JobsCancel, caller: Caller, tally: _Tally, meant: JobFilter
    ) -> None:  # fmt: skip
        """Cancel these, or only count them."""
        tally.matched += [shown.state.id for shown in jobs]
        if asked.dry_run:
            tally.skipped += sum(shown.state.status in TERMINAL for shown in jobs)
            return
        outcomes = await asyncio.gather(
            *(self._canceller.apply(shown, caller, meant.fits_state) for shown in jobs), return_exceptions=True
        )
        if jobs and all(isinstance(outcome, StoreUnavailable) for outcome in outcomes):
            raise StoreUnavailable("none of these could be cancelled")  # the rest need not be tried
        for shown, outcome in zip(jobs, outcomes, strict=True):
            match outcome:
                case Problem(code=code) | StoreUnavailable(code=code):
                    tally.fail(shown.state.id, code)
                case BaseException():
                    raise outcome
                case done if not done.now:
                    tally.skipped += 1
                case done:
                    tally.cancelled += done.outcome == "cancelled"
                    tally.requested += done.outcome == "requested"

    def _resume(self, cursor: str | None, question: str) -> tuple[str, str] | None:
        if cursor is None:
            return None
        try:
            operation_id, _, below = unseal(self._context.secret("cursors"), question, cursor).partition(" ")
        except BadCursor:
            raise Problem("bad_cursor") from None
        return operation_id, below

"""Reading jobs: one job, its result, events and artifacts."""

import asyncio

from aiohttp import web

from contracts import events as ev
from contracts.envelope import Origin, event_view
from contracts.job import TERMINAL, WAITING, JobState, JobStatus
from contracts.job_fold import evolve
from contracts.store.jobs import MOST_EVENTS
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.conditional import etag, is_unchanged
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit, read_whole
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.handlers.state import read_at
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import artifact_view
from services.ingest.views.queue import queue_view

MAX_EVENTS_PAGE = 500
_NOTHING: frozenset[str] = frozenset()


class JobHandlers:
    """Routes below `/v1/jobs/{id}`."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context = context
        self._reader = reader

    async def get_job(self, request: web.Request, caller: Caller) -> web.Response:
        """Show the job as it is, or as it was after event `?sequence=` or `?at=` an instant; 304 if unchanged."""
        check_query(request, frozenset({"sequence", "at"}))
        shown = await self._reader.need(caller, request.match_info["id"])
        sequence = read_whole(request, "sequence", 1, 10**9)
        if "at" in request.query:
            if sequence is not None:
                raise Problem("bad_parameter", "sequence and at exclude each other")
            at = read_at(request)
            if at.pool_code not in (None, shown.meta.code):
                raise Problem("bad_parameter", "at is a position of another pool")
            view = self._reader.show(await self._reader.details_then(shown, at.holds, MOST_EVENTS))
        elif sequence is None:
            current = etag(shown.state.sequence)
            if is_unchanged(request.headers.get("If-None-Match"), current):
                return web.Response(status=304, headers={"ETag": current})
            view = await self._live(shown)
        elif sequence > shown.state.sequence:
            raise Problem("bad_parameter", f"The job has {shown.state.sequence} events so far")
        else:
            view = self._reader.show(await self._reader.details_at(shown, sequence, MOST_EVENTS))
        return json_answer(view, headers={"ETag": etag(view["sequence"])})

    async def _live(self, shown: Shown) -> JsonObject:
        """Return the job as it is now, with its place in the queue while it waits."""
        if shown.state.status not in WAITING:
            return await self._reader.view(shown)
        pool, asker = shown.meta.name, self._context.asker
        asked = asker.place(pool, shown.state.tenant_id, shown.state.id)
        view, place = await asyncio.gather(self._reader.view(shown), asked)
        return view | ({"queue": queue_view(pool, place)} if view["status"] in WAITING else {})

    async def result(self, request: web.Request, caller: Caller) -> web.Response:
        """Show the result: 200 when there is one, 202 while there is none yet, 409 when there will be none."""
        check_query(request, _NOTHING)
        shown = await self._reader.need(caller, request.match_info["id"])
        self._reader.check_content(shown)
        details = await self._reader.details(shown)
        view = self._reader.show(details)
        status = details.state.status
        if status not in TERMINAL:
            return json_answer({"jobId": view["id"], "status": status, "progress": view["progress"]}, 202)
        if status is not JobStatus.COMPLETED:
            raise Problem("job_failed", f"The job is {status}", extensions={"job": view["id"], "error": view["error"]})
        if not details.lines.spec:
            raise Problem("data_erased", "The result was erased")
        return json_answer(
            {
                "jobId": view["id"],
                "status": status,
                "result": details.lines.result or {},
                "resultUrl": view["resultUrl"],
                "artifacts": view["artifacts"],
            }
        )

    async def artifacts(self, request: web.Request, caller: Caller) -> web.Response:
        """List the job's stored files, while it runs those of the running attempt."""
        check_query(request, frozenset({"variant"}))
        shown = await self._reader.need(caller, request.match_info["id"])
        self._reader.check_content(shown)
        history = await self._reader.history(shown, MOST_EVENTS, with_body=False)
        stored: dict[str, ev.ArtifactRef] = {}
        for entry in history.entries:
            if entry.fence != history.state.fence:
                continue
            match entry.event():
                case ev.ArtifactUploaded(artifact=one) | ev.ThumbnailReady(artifact=one):
                    stored[one.id] = one
                case ev.JobCompleted(artifacts=all_of_them):
                    stored = {one.id: one for one in all_of_them}
        wanted = request.query.get("variant")
        place = self._context.place(shown.meta)
        views = [artifact_view(one, place.public_url) for one in stored.values() if wanted in (None, one.variant)]
        return json_answer({"data": views, "hasMore": False, "nextCursor": None})

    async def events(self, request: web.Request, caller: Caller) -> web.Response:
        """List the job's events in order."""
        check_query(request, frozenset({"limit", "cursor"}))
        shown = await self._reader.need(caller, request.match_info["id"])
        limit = read_limit(request, MAX_EVENTS_PAGE)
        after = self._events_after(request, caller)
        history = await self._reader.history(shown, MOST_EVENTS, with_body=False)
        if not history.complete:
            raise Problem("data_erased", "The first events of this job are no longer in the log")
        views: list[object] = []
        place = self._context.place(shown.meta)
        origin = Origin(place.code, place.epoch, place.public_url)
        state = JobState(shown.state.id)
        for entry in history.entries[: after + limit]:
            before, state = state, evolve(state, entry)
            if entry.sequence > after:
                views.append(event_view(entry, before, state, origin))
        has_more = len(history.entries) > after + limit
        question = self._question(request, caller)
        cursor = seal(self._context.secret("cursors"), question, str(after + limit)) if has_more else None
        return page_answer(request, views, cursor)

    def _events_after(self, request: web.Request, caller: Caller) -> int:
        cursor = request.query.get("cursor")
        if cursor is None:
            return 0
        try:
            return int(unseal(self._context.secret("cursors"), self._question(request, caller), cursor))
        except BadCursor:
            raise Problem("bad_cursor") from None

    def _question(self, request: web.Request, caller: Caller) -> str:
        return f"{caller.tenant_id}\n{request.path}"

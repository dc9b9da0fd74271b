"""Why a job waits, and how much waits in a pool: what only the leader's fold knows, asked through the store."""

from aiohttp import web

from contracts.job import WAITING
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, read_whole
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from services.ingest.views.queue import backlog_view, explain_view

TARGET_S, LONGEST_TARGET_S = 60, 86_400
_NOTHING: frozenset[str] = frozenset()


class ExplainHandlers:
    """`GET /v1/jobs/{id}/explain` and `GET /admin/v1/pools/{pool}/autoscale`."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context, self._reader = context, reader

    async def explain(self, request: web.Request, caller: Caller) -> web.Response:
        """Say why a job does not run, what is before it, and where it would run; nothing of other tenants."""
        check_query(request, _NOTHING)
        shown = await self._reader.need(caller, request.match_info["id"])
        state, pool = shown.state, shown.meta.name
        told = None
        if state.status in WAITING:
            told = await self._context.asker.why(pool, state.tenant_id, state.id)
        return json_answer(explain_view(state.id, pool, state.status, told))

    async def autoscale(self, request: web.Request, caller: Caller) -> web.Response:
        """Say how many workers the pool should have, so that what waits is done within `targetSeconds`."""
        check_query(request, frozenset({"targetSeconds"}))
        target_s = read_whole(request, "targetSeconds", 1, LONGEST_TARGET_S) or TARGET_S
        pool = request.match_info["pool"]
        if pool not in self._context.pools:
            raise Problem("pool_not_found")
        told = await self._context.asker.backlog(pool, target_s * 1000)
        if told is None:
            raise Problem("scheduler_unavailable", f"Nobody answers for pool {pool}")
        return json_answer(backlog_view(pool, told))

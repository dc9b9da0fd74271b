"""`/v1/usage`: what a tenant used, by day, model and pool; for operators what all tenants used.

Promises: a tenant sees its own; each answer says as of when it is exact; a line that is `final` never changes.
"""

import asyncio
from collections.abc import Mapping

import orjson
from aiohttp import web

from contracts.archive import Archive
from contracts.times import DAY_MS, instant
from contracts.usage.reading import UsageReader, Used
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, page_answer, read_limit
from services.ingest.handlers.configured import ConfiguredHandlers
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.usage import UsageQuery, as_csv, grouped, read_usage_query, usage_line

MOST_LINES = 10_000
_NAMES = frozenset({"from", "to", "groupBy", "model", "format", "limit", "cursor"})


class UsageHandler(ConfiguredHandlers):
    """Adds up what all pools say."""

    def __init__(self, context: Context, archive: Archive) -> None:
        super().__init__(context)
        self._archive, self._readers = archive, dict[str, UsageReader]()

    async def usage(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what the tenant used."""
        check_query(request, _NAMES)
        return await self._answer(request, read_usage_query(request.query, caller.tenant_id, self._today()))

    async def admin_usage(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what all tenants used, or one."""
        check_query(request, _NAMES | {"tenantId"})
        return await self._answer(request, read_usage_query(request.query, None, self._today()))

    async def _answer(self, request: web.Request, query: UsageQuery) -> web.Response:
        is_csv = _wants_csv(request)
        limit = read_limit(request, MOST_LINES, MOST_LINES if is_csv else None)
        question = f"usage\n{query.canonical}"
        place = self._place(question, request.query.get("cursor"))
        used = await self._used(query)
        as_of_ms = min((each.as_of_ms for each in used.values()), default=0)
        lines, last = await asyncio.to_thread(_lines, query, used, place, limit, as_of_ms)
        since = [each.since_ms for each in used.values() if each.since_ms is not None]
        about = {"asOf": instant(as_of_ms), "since": instant(max(since, default=None))}
        answer = page_answer(request, [] if is_csv else list(lines), self._cursor(question, last), about)
        if is_csv:  # in a thread: 10,000 lines take longer than others should wait
            answer.body = (await asyncio.to_thread(as_csv, query, lines)).encode()
            answer.content_type, answer.charset = "text/csv", "utf-8"
        return answer

    async def _used(self, query: UsageQuery) -> Mapping[str, Used]:
        pools = list(self._context.pools)
        if not pools:
            self._context.pool("")  # raises StoreUnavailable
        for pool in pools:
            if pool not in self._readers:
                self._readers[pool] = UsageReader(self._context.store, self._archive, pool)
        read = (self._readers[pool].read(query.days, query.tenant_id) for pool in pools)
        return dict(zip(pools, await asyncio.gather(*read), strict=True))

    def _today(self) -> int:
        # Of the store, whose time the counted events have: a host two days behind would leave out what was used today.
        return (self._context.readiness.server_ms() or self._context.now_ms()) // DAY_MS


def _wants_csv(request: web.Request) -> bool:
    accepts = "csv" if "text/csv" in request.headers.get("Accept", "") else "json"
    form = request.query.get("format", accepts)
    if form not in ("csv", "json"):
        raise Problem("bad_parameter", "format is csv or json")
    return form == "csv"


def _lines(
    query: UsageQuery, used: Mapping[str, Used], place: str, limit: int, as_of_ms: int
) -> tuple[list[JsonObject], str | None]:
    """Return the lines behind a place, and the place of the last one if more follow."""
    found = grouped(query, {pool: each.rows for pool, each in used.items()})
    after = tuple(orjson.loads(place)) if place else None
    groups = sorted(group for group in found if after is None or group > after)
    lines = [usage_line(query, group, found[group], as_of_ms) for group in groups[:limit]]
    return lines, orjson.dumps(groups[limit - 1]).decode() if len(groups) > limit else None

"""`/v1/state`: how a tenant's jobs stood at an instant of the past, and what they ran on; for operators all jobs.

Promises: the answer names the positions it is the fold of, so that asking for these again gives the same; pages of the
running jobs are all of the same instant.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from aiohttp import web

from contracts.ids import is_job_id
from contracts.positions import BadPosition, Position, entry_key, next_key, parse_position
from contracts.store.jobs import MOST_EVENTS
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.folding import Folder
from services.ingest.events.query import Key
from services.ingest.events.standing import Standing
from services.ingest.filters import read_instant_ms
from services.ingest.handlers.answers import check_query, json_answer, read_whole
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.standing import counts_view, pool_view, running_view

MOST_SHOWN = 500
_NAMES = frozenset({"at", "scope", "limit", "cursor"})
_SCOPES = "scope is tenant, pool:<name> or job:<id>"


@dataclass(frozen=True, slots=True)
class At:
    """An instant: the first place that does not belong to it, and its pool if it was told as a position."""

    end: Key | None
    pool_code: str | None = None

    def holds(self, position: str) -> bool:
        """Whether an entry was there at the instant."""
        return self.end is None or entry_key(position) < self.end


def read_at(request: web.Request) -> At:
    """Return `?at=`, a time or a position, both included; now without it. Raises Problem `bad_parameter`."""
    text = request.query.get("at")
    if text is None:
        return At(None)
    try:
        position = parse_position(text)
    except BadPosition:
        ms = read_instant_ms(request.query, "at")
        return At(None if ms is None else (ms + 1, 0))
    ms, seq = entry_key(position.entry)
    return At((ms, seq + 1), position.pool_code)


@dataclass(frozen=True, slots=True)
class Page:
    """Which of the running jobs to show: those behind `behind`, by id, as of `ends` in each pool."""

    ends: Mapping[str, Key | None]
    behind: str = ""


class StateHandler:
    """Folds the log."""

    def __init__(self, context: Context, reader: EventReader, jobs: JobReader) -> None:
        self._context, self._reader, self._jobs = context, reader, jobs
        self._folder = Folder()

    async def state(self, request: web.Request, caller: Caller) -> web.Response:
        """Show how the tenant's jobs stood."""
        check_query(request, _NAMES)
        at = read_at(request)
        kind, _, job_id = request.query.get("scope", "tenant").partition(":")
        if kind == "job":
            return await self._of_job(caller, job_id, at)
        return await self._state(request, caller.tenant_id, at)

    async def admin_state(self, request: web.Request, caller: Caller) -> web.Response:
        """Show how all jobs stood."""
        check_query(request, _NAMES)
        return await self._state(request, None, read_at(request))

    async def _state(self, request: web.Request, tenant_id: str | None, at: At) -> web.Response:
        pools = self._pools(request.query.get("scope", "tenant"), at)
        limit = read_whole(request, "limit", 1, MOST_SHOWN) or MOST_SHOWN
        page = self._page(request, tenant_id, pools, at)
        ground = self._reader.ground
        found = {name: await self._folder.fold(ground(name), tenant_id, page.ends[name]) for name in pools}
        view = self._view(found)
        ran = sorted((job_id, job, pool) for pool, each in found.items() for job_id, job in each.running)
        ahead = [each for each in ran if each[0] > page.behind]
        shown = ahead[:limit]
        cursor = self._cursor(request, tenant_id, found, shown[-1][0]) if len(ahead) > limit else None
        running = [running_view(*each, is_for_operators=tenant_id is None) for each in shown]
        return json_answer(
            view | {"runningCount": len(ran), "running": running, "hasMore": cursor is not None, "nextCursor": cursor}
        )

    async def _of_job(self, caller: Caller, job_id: str, at: At) -> web.Response:
        """Answer about one job; what the pool had beside it is asked of the pool."""
        if not is_job_id(job_id):
            raise Problem("bad_parameter", _SCOPES)
        shown = await self._jobs.need(caller, job_id)
        if at.pool_code not in (None, shown.meta.code):
            raise Problem("bad_parameter", "at is a position of another pool")
        job = self._jobs.show(await self._jobs.details_then(shown, at.holds, MOST_EVENTS))
        return json_answer(
            {
                "object": "state", "positions": {shown.meta.name: job["position"]}, "counts": {str(job["status"]): 1},
                "pools": {}, "runningCount": int(job["status"] == "in_progress"), "running": [], "hasMore": False,
                "nextCursor": None, "job": job,
            }
        )  # fmt: skip

    def _pools(self, scope: str, at: At) -> list[str]:
        kind, _, name = scope.partition(":")
        known = self._context.pools
        if not known:
            self._context.pool("")  # raises StoreUnavailable
        codes = {meta.name: meta.code for meta in known.values()}
        if kind == "pool" and name not in known:
            raise Problem("pool_not_found")
        if kind not in ("tenant", "pool") or (kind == "tenant" and name):
            raise Problem("bad_parameter", _SCOPES)
        pools = [name] if kind == "pool" else list(known)
        if at.pool_code is None:
            return pools
        if len(pools := [each for each in pools if codes[each] == at.pool_code]) != 1:
            raise Problem("bad_parameter", "at is a position of another pool")
        return pools

    def _page(self, request: web.Request, tenant_id: str | None, pools: list[str], at: At) -> Page:
        cursor = request.query.get("cursor")
        if cursor is None:
            return Page(dict.fromkeys(pools, at.end))
        try:
            text = unseal(self._context.secret("cursors"), _question(request, tenant_id), cursor)
        except BadCursor:
            raise Problem("bad_cursor") from None
        places, behind = orjson.loads(text)
        return Page({name: next_key(places[name]) if places.get(name) else (0, 0) for name in pools}, behind)

    def _cursor(self, request: web.Request, tenant_id: str | None, found: dict[str, Standing], behind: str) -> str:
        place = orjson.dumps([{name: standing.position for name, standing in found.items()}, behind]).decode()
        return seal(self._context.secret("cursors"), _question(request, tenant_id), place)

    def _view(self, found: dict[str, Standing]) -> JsonObject:
        positions: dict[str, str | None] = {}
        for pool, standing in found.items():
            place = self._context.place(self._context.pool(pool))
            at = standing.position
            positions[pool] = str(Position(place.code, place.epoch, at)) if at else None
        return {
            "object": "state",
            "positions": positions,
            "counts": counts_view(found.values()),
            "pools": {name: pool_view(standing) for name, standing in found.items()},
        }


def _question(request: web.Request, tenant_id: str | None) -> str:
    return f"{tenant_id}\nstate\n{request.query.get('scope')}\n{request.query.get('at')}"

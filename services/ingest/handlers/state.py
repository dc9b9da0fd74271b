"""`/v1/state`: counts of a tenant's jobs and which of them ran, at an instant of the past.

Promises: the answer names the positions it is the fold of, so that asking for these again gives the same; what it
cannot fold in bounded work it refuses instead of counting a part.
"""

from dataclasses import dataclass

from aiohttp import web

from contracts.positions import BadPosition, Position, entry_key, parse_position
from contracts.times import instant
from contracts.wire import Entry
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import Key
from services.ingest.events.standing import Standing
from services.ingest.filters import read_instant_ms
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

MAX_FOLDED = 200_000
MOST_SHOWN = 500
_STEP = 1_000


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


class StateHandler:
    """Folds the log."""

    def __init__(self, context: Context, reader: EventReader) -> None:
        self._context, self._reader = context, reader

    async def state(self, request: web.Request, caller: Caller) -> web.Response:
        """Show how the tenant's jobs stood."""
        check_query(request, frozenset({"at", "scope"}))
        at = read_at(request)
        pools = self._pools(request.query.get("scope", "tenant"), at)
        found = {name: await self._fold(name, caller.tenant_id, at) for name in pools}
        return json_answer(self._view(found))

    def _pools(self, scope: str, at: At) -> list[str]:
        kind, _, name = scope.partition(":")
        known = self._context.pools
        if not known:
            self._context.pool("")  # raises StoreUnavailable
        codes = {meta.name: meta.code for meta in known.values()}
        if kind == "pool" and name not in known:
            raise Problem("pool_not_found")
        if kind not in ("tenant", "pool") or (kind == "tenant" and name):
            raise Problem("bad_parameter", "scope is tenant or pool:<name>; a job's past is at /v1/jobs/{id}?at=")
        pools = [name] if kind == "pool" else list(known)
        if at.pool_code is None:
            return pools
        if len(pools := [each for each in pools if codes[each] == at.pool_code]) != 1:
            raise Problem("bad_parameter", "at is a position of another pool")
        return pools

    async def _fold(self, pool: str, tenant_id: str, at: At) -> Standing:
        ground, standing, count = self._reader.ground(pool), Standing(tenant_id), 0
        async for entries in ground.archive.entries(pool, None, count=_STEP):
            for entry in entries:
                if not at.holds(entry.position):
                    return standing
                if isinstance(entry, Entry):
                    standing.fold(entry)
            count += len(entries)
            if count > MAX_FOLDED:
                told = f"More than {MAX_FOLDED} events lie before this instant; export them and fold them yourself"
                raise Problem("bad_parameter", told)
        return standing

    def _view(self, found: dict[str, Standing]) -> JsonObject:
        counts: dict[str, int] = {}
        running: list[JsonObject] = []
        positions: dict[str, str | None] = {}
        for pool, standing in found.items():
            place = self._context.place(self._context.pool(pool))
            at = standing.position
            positions[pool] = str(Position(place.code, place.epoch, at)) if at else None
            for status, count in standing.counts.items():
                counts[status] = counts.get(status, 0) + count
            running += [
                {"jobId": job_id, "pool": pool, "workerId": job.worker_id, "startedAt": instant(job.started_ms)}
                for job_id, job in standing.jobs.items()
                if job.worker_id is not None
            ]
        return {"object": "state", "positions": positions, "counts": counts, "running": running[:MOST_SHOWN]}

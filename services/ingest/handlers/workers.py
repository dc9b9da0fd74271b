"""`GET /admin/v1/workers[/{id}]`: who works, on which devices, on what."""

import asyncio
from collections.abc import Mapping, Sequence

import orjson
from aiohttp import web

from contracts.times import instant
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

_NOTHING: frozenset[str] = frozenset()
_OF_GPUS = ("model", "driver", "bytesFree", "bytesForeign", "utilizationPercent", "temperatureC")


class WorkerHandlers:
    """Reads the workers' hashes; a worker that is lost or gone has none."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list_workers(self, request: web.Request, caller: Caller) -> web.Response:
        """List all workers of all pools."""
        check_query(request, _NOTHING)
        return json_answer({"data": await self.views(tuple(self._context.pools)), "hasMore": False, "nextCursor": None})

    async def get_worker(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one worker."""
        check_query(request, _NOTHING)
        return json_answer(await self.need(request.match_info["worker"]))

    async def need(self, worker_id: str) -> JsonObject:
        """Return a worker as it is shown. Raises Problem `worker_not_found`."""
        view = next((view for view in await self.views(tuple(self._context.pools)) if view["id"] == worker_id), None)
        if view is None:
            raise Problem("worker_not_found")
        return view

    async def views(self, pools: Sequence[str]) -> list[JsonObject]:
        """Return the workers of these pools as they are shown."""
        found = []
        for pool in pools:
            workers = await self._context.within(self._context.store.workers(pool))
            found += [self._view(pool, worker_id, fields) for worker_id, fields in sorted(workers.items())]
        return list(await asyncio.gather(*found))

    async def _view(self, pool: str, worker_id: str, fields: Mapping[str, str]) -> JsonObject:
        held = [{"jobId": job_id, "fence": fence} for job_id, fence in _list(fields.get("held"))]
        by_slot = await self._by_slot(pool, held)
        devices = [_device(each, by_slot) for each in told_devices(fields)]
        seen_ms = fields.get("seen")
        return {
            "id": worker_id,
            "object": "worker",
            "pool": pool,
            "host": fields.get("host"),
            "pid": int(fields["pid"]) if fields.get("pid", "").isdigit() else None,
            "state": fields.get("state"),
            "lastBeatAt": instant(int(seen_ms)) if seen_ms else None,
            "beats": int(fields.get("b", 0)),
            "version": fields.get("version"),
            "held": held,
            "devices": devices,
        }

    async def _by_slot(self, pool: str, held: list[JsonObject]) -> dict[int | None, JsonObject]:
        """Say which slot each attempt runs in; the job knows, the heartbeat does not."""
        jobs = self._context.store.jobs
        reads = [self._context.within(jobs.history(pool, str(each["jobId"]), limit=0)) for each in held]
        histories = await asyncio.gather(*reads)
        return {
            history.state.slot: attempt for history, attempt in zip(histories, held, strict=True) if history is not None
        }


def told_devices(fields: Mapping[str, str]) -> list[JsonObject]:
    """Return what a worker said of its devices last."""
    return [each for each in _list(fields.get("devices")) if isinstance(each, dict)]


def _device(told: JsonObject, by_slot: Mapping[int | None, JsonObject]) -> JsonObject:
    nothing: JsonObject = {"jobId": None, "fence": None}
    slots = [slot | by_slot.get(slot.get("index"), nothing) for slot in told.get("slots", ())]
    return {
        "uuid": told.get("uuid") or told.get("name"),
        "kind": told.get("kind"),
        "bytesTotal": told.get("bytesTotal"),
        "bytesReserved": told.get("bytesReserved"),
        "slots": slots,
        "models": told.get("models", []),
        **{name: told[name] for name in _OF_GPUS if name in told},
    }


def _list(text: str | None) -> list[JsonObject]:
    try:
        value = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return []
    return value if isinstance(value, list) else []

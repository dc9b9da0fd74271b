"""`/v1/replays`: the past as a stream, jobs as they were, or under another policy. What is asked is in the id, sealed.

Promises: a replay is its tenant's alone (another policy: the operator's), ends where the log ended when it was asked
for or its stream began, and writes nothing. A process that does not know a replay runs it again from its id.
"""

import time
from dataclasses import dataclass
from typing import Literal

import orjson
from aiohttp import web

from contracts.events import PolicyFacts
from contracts.positions import BadPosition, entry_key, parse_position
from contracts.replay_api import ReplayCreate, WhatIfPolicy
from contracts.times import instant, ms_of
from services.ingest.context import Context
from services.ingest.cursor import MAX_LENGTH, BadCursor, seal, unseal
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Fault, Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import EventQuery, read_places, read_query
from services.ingest.events.replaying import replay
from services.ingest.filters import read_instant_ms
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.bodies import read_as
from services.ingest.handlers.pools import KNOBS
from services.ingest.live.hub import Hub
from services.ingest.live.sse import StreamHandlers
from services.ingest.replays.running import Run, Runs
from services.ingest.requests import invalid_input
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

PREFIX = "rpl_"
Mode = Literal["stream", "project", "whatif"]
_LAST = 2**64 - 1  # of a millisecond
_NOTHING: frozenset[str] = frozenset()
_SCOPES: dict[Mode, str] = {"stream": "events:read", "project": "events:read", "whatif": "admin"}
_MODULES: dict[Mode, str] = {
    "stream": "",
    "project": "services.ingest.replays",
    "whatif": "services.scheduler.simulate",  # a process, as everything of another service
}
_SHOWN = ("speed", "from", "to", "at", "pool", "policy")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a replay's id says. `work`: the question of the process that computes it."""

    mode: Mode
    shown: JsonObject
    filters: dict[str, str]
    work: JsonObject
    created_ms: int

    def query(self) -> dict[str, str]:
        """Return the question about events that a stream answers."""
        times = {name: self.shown[name] for name in ("from", "to") if self.shown.get(name)}
        return self.filters | times


class ReplayHandlers:
    """Makes, shows, streams, lists and ends replays."""

    def __init__(
        self, context: Context, reader: EventReader, hub: Hub, streams: StreamHandlers, runs: Runs
    ) -> None:  # fmt: skip
        self._context, self._reader, self._hub, self._streams, self._runs = context, reader, hub, streams, runs

    async def create_replay(self, request: web.Request, caller: Caller) -> web.Response:
        """Say where a replay can be read, and begin to compute it if that is what it is."""
        body = await read_as(self._context, request, ReplayCreate)
        caller.require(_SCOPES[body.mode])
        asked = await self._asked(caller, body)
        sealed = orjson.dumps([asked.mode, asked.shown, asked.filters, asked.work, asked.created_ms]).decode()
        text = seal(self._context.secret("cursors"), _scope(caller), sealed)
        if len(text) > MAX_LENGTH:
            raise invalid_input((Fault("", "too_large", "says more than an id has room for; ask about less"),))
        replay_id = PREFIX + text
        run = self._runs.begin(_run(replay_id, caller, asked))
        return json_answer(_view(run, asked), 202 if run.module else 201)

    async def list_replays(self, request: web.Request, caller: Caller) -> web.Response:
        """List those that this process knows."""
        check_query(request, _NOTHING)
        known = [(run, self._unsealed(run.id, caller)) for run in self._runs.of(caller.tenant_id)]
        views = [_view(run, asked) for run, asked in known if _SCOPES[asked.mode] in caller.scopes]
        return json_answer({"data": views, "hasMore": False, "nextCursor": None})

    async def get_replay(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what a replay is of, and what came of it."""
        check_query(request, _NOTHING)
        replay_id = request.match_info["id"]
        asked = self._read(replay_id, caller)
        run = self._runs.find(replay_id) or self._runs.begin(_run(replay_id, caller, asked))
        return json_answer(_view(run, asked) | ({"result": run.result} if run.result else {}))

    async def delete_replay(self, request: web.Request, caller: Caller) -> web.Response:
        """End it."""
        check_query(request, _NOTHING)
        replay_id = request.match_info["id"]
        try:
            asked = self._read(replay_id, caller)
        except Problem:
            if (known := self._runs.find(replay_id)) is None or known.tenant_id != caller.tenant_id:
                raise
        else:
            self._runs.cancel(self._runs.find(replay_id) or _run(replay_id, caller, asked))
        return web.Response(status=204)

    async def replay_stream(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Stream it."""
        check_query(request, frozenset({"after"}))
        replay_id = request.match_info["id"]
        asked = self._read(replay_id, caller)
        if asked.mode != "stream":
            raise Problem("replay_not_found", "Only a replay of the mode stream has a stream")
        query = self._query(caller, asked.query())
        after = read_places(only_header(request, "Last-Event-ID") or request.query.get("after"))
        with self._hub.stream(caller.key_id, "replay"):
            scan = await self._reader.scan_to_end(query, None, after)
            places = {place.pool_code: str(place) for place in after}
            pace = 0 if asked.shown["speed"] == "max" else int(asked.shown["speed"])
            told = replay(scan, pace, places, lambda: self._is_over(replay_id), time.monotonic)
            return await self._streams.send(request, caller, told, "replay")

    def _is_over(self, replay_id: str) -> bool:
        known = self._runs.find(replay_id)
        return self._hub.is_over or (known is not None and known.status == "cancelled")

    async def _asked(self, caller: Caller, body: ReplayCreate) -> Asked:
        filters = body.filters.model_dump(by_alias=True, exclude_none=True)
        shown: JsonObject = {"from": instant(ms_of(body.from_)), "to": instant(ms_of(body.to)), "at": body.at}
        if body.mode == "stream":
            shown["speed"] = body.speed
        work: JsonObject = {}
        if body.mode == "whatif":
            policy = body.policy or WhatIfPolicy()
            shown["pool"] = body.pool or next(iter(self._context.pools), "default")
            shown["policy"] = policy.model_dump(by_alias=True, exclude_none=True)
            work = self._what_if(body, policy, shown["pool"])
        elif body.mode == "project":
            work = await self._projection(caller, body)
        asked = Asked(body.mode, shown, filters, work, self._context.now_ms())
        self._query(caller, asked.query())
        return asked

    def _what_if(self, body: ReplayCreate, policy: WhatIfPolicy, pool: str) -> JsonObject:
        if pool not in self._context.pools:
            raise Problem("pool_not_found")
        given = policy.model_dump(by_alias=True, exclude_none=True, exclude={"weights"})
        knobs = {KNOBS[name]: value for name, value in given.items()}
        try:
            self._context.settings.scheduler.policy.changed(PolicyFacts.model_validate(knobs))
        except ValueError:
            raise invalid_input((Fault("/policy", "contradiction", "is out of bounds as a whole"),)) from None
        begin, end = ms_of(body.from_), ms_of(body.to)
        return {
            "pool": pool,
            "from": None if begin is None else [begin, 0],
            "to": None if end is None else [end - 1, _LAST],  # `to` is not included
            "knobs": knobs,
            "weights": policy.weights,
        }

    async def _projection(self, caller: Caller, body: ReplayCreate) -> JsonObject:
        """Say where each pool's fold ends; a time stands for the last place that was there then."""
        context, job_id = self._context, body.filters.job_id
        meta = None if job_id is None else context.pool_of(job_id)
        pools = dict(context.pools) if job_id is None else {meta.name: meta} if meta is not None else {}
        ends: dict[str, str] = {}
        for name, pool in pools.items():
            end = await context.within(context.store.end_of_log(name))
            place = end if body.at is None else _place(body.at, pool.code)
            if place is not None:
                ends[name] = min(end, place, key=entry_key)
        if not ends:
            raise Problem("bad_parameter", "at is a position of no pool, or of another one than the job's")
        return {"pools": ends, "tenantId": caller.tenant_id} | ({"jobId": job_id} if job_id else {})

    def _read(self, replay_id: str, caller: Caller) -> Asked:
        asked = self._unsealed(replay_id, caller)
        caller.require(_SCOPES[asked.mode])
        return asked

    def _unsealed(self, replay_id: str, caller: Caller) -> Asked:
        known = self._runs.find(replay_id)
        try:
            if known is not None and known.status == "cancelled":
                raise BadCursor("deleted")
            text = unseal(self._context.secret("cursors"), _scope(caller), replay_id.removeprefix(PREFIX))
        except BadCursor:
            raise Problem("replay_not_found", "There is no such replay, or it is not yours") from None
        return Asked(*orjson.loads(text))

    def _query(self, caller: Caller, question: dict[str, str]) -> EventQuery:
        return read_query(question, caller.tenant_id, self._reader.digest_of_user)


def _run(replay_id: str, caller: Caller, asked: Asked) -> Run:
    return Run(replay_id, caller.tenant_id, _MODULES[asked.mode], asked.work, asked.created_ms)


def _view(run: Run, asked: Asked) -> JsonObject:
    link = f"/v1/replays/{run.id}"
    return {
        "id": run.id,
        "object": "replay",
        "mode": asked.mode,
        "status": run.status,
        **{name: asked.shown.get(name) for name in _SHOWN},
        "filters": {name: asked.filters.get(name) for name in ("jobId", "userId", "model", "type")},
        "result": None,
        "problem": run.problem,
        "createdAt": instant(asked.created_ms),
        "urls": {"self": link, "stream": None if run.module else link + "/stream"},
    }


def _scope(caller: Caller) -> str:
    return f"{caller.tenant_id}\nreplay"


def _place(text: str, pool_code: str) -> str | None:
    """Return the last place of a pool that counts; None for a position of another one. Raises Problem."""
    try:
        position = parse_position(text)
    except BadPosition:
        return f"{read_instant_ms({'at': text}, 'at')}-{_LAST}"
    return position.entry if position.pool_code == pool_code else None

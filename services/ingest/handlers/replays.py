"""`/v1/replays`: a stretch of the past as a stream. What is asked is in the id, sealed: nothing is kept of a replay.

Promises: a replay is its tenant's alone, ends where the log ended when the stream began, and writes nothing.
"""

import time
from datetime import datetime

import orjson
from aiohttp import web

from contracts.replay_api import ReplayCreate
from contracts.times import instant
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.body import read_body
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import EventQuery, read_places, read_query
from services.ingest.events.replaying import replay
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.live.hub import Hub
from services.ingest.live.sse import StreamHandlers
from services.ingest.requests import parse_body
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

PREFIX = "rpl_"
_NOTHING: frozenset[str] = frozenset()


class ReplayHandlers:
    """Makes, shows and streams replays."""

    def __init__(self, context: Context, reader: EventReader, hub: Hub, streams: StreamHandlers) -> None:
        self._context, self._reader, self._hub, self._streams = context, reader, hub, streams

    async def create_replay(self, request: web.Request, caller: Caller) -> web.Response:
        """Say where a replay can be read."""
        check_query(request, _NOTHING)
        with self._context.room.share() as share:
            asked = parse_body(ReplayCreate, await read_body(request, self._context.body_limits, share))
        filters = asked.filters.model_dump(by_alias=True, exclude_none=True)
        times = {"from": _text(asked.from_), "to": _text(asked.to)}
        question = {name: text for name, text in (filters | times).items() if text is not None}
        self._query(caller, question)
        sealed = orjson.dumps({"question": question, "speed": asked.speed}).decode()
        replay_id = PREFIX + seal(self._context.secret("cursors"), _scope(caller), sealed)
        return json_answer(self._view(replay_id, question, asked.speed), 201)

    async def get_replay(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what a replay is of."""
        check_query(request, _NOTHING)
        question, speed = self._read(request, caller)
        return json_answer(self._view(request.match_info["id"], question, speed))

    async def replay_stream(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Stream it."""
        check_query(request, frozenset({"after"}))
        question, speed = self._read(request, caller)
        query = self._query(caller, question)
        after = read_places(only_header(request, "Last-Event-ID") or request.query.get("after"))
        with self._hub.stream(caller.key_id, "replay"):
            scan = await self._reader.scan_to_end(query, None, after)
            places = {place.pool_code: str(place) for place in after}
            pace = 0 if speed == "max" else int(speed)
            told = replay(scan, pace, places, lambda: self._hub.is_over, time.monotonic)
            return await self._streams.send(request, caller, told, "replay")

    def _read(self, request: web.Request, caller: Caller) -> tuple[dict[str, str], int | str]:
        replay_id = request.match_info["id"]
        try:
            text = unseal(self._context.secret("cursors"), _scope(caller), replay_id.removeprefix(PREFIX))
        except BadCursor:
            raise Problem("replay_not_found", "There is no such replay, or it is not yours") from None
        sealed = orjson.loads(text)
        return sealed["question"], sealed["speed"]

    def _query(self, caller: Caller, question: dict[str, str]) -> EventQuery:
        return read_query(question, caller.tenant_id, self._reader.digest_of_user)

    def _view(self, replay_id: str, question: dict[str, str], speed: int | str) -> JsonObject:
        filters = {name: question.get(name) for name in ("jobId", "userId", "type")}
        link = f"/v1/replays/{replay_id}"
        return {
            "id": replay_id,
            "object": "replay",
            "mode": "stream",
            "speed": speed,
            "from": question.get("from"),
            "to": question.get("to"),
            "filters": filters,
            "urls": {"self": link, "stream": link + "/stream"},
        }


def _scope(caller: Caller) -> str:
    return f"{caller.tenant_id}\nreplay"


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else instant(round(moment.timestamp() * 1000))

"""`GET /v1/jobs/{id}/logs`: what the attempts of a job printed, as a list or followed as server-sent events.

Promises: every attempt in order, each from its beginning; whoever comes back with the id of the last event, or the
cursor, has each byte once; following ends with the job. Does not promise that an attempt whose worker died left a log.
"""

import asyncio

import orjson
from aiohttp import web

from contracts.errors import HeadraceError
from contracts.store.live import STORED, Piece
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.middleware import REQUEST_ID, stamp
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, read_limit
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.log_reading import Place, Printed, follow_on, is_running, read_place, read_stored, stored
from services.ingest.log_tails import Feed, LogTails
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.watch import JobWatch

HEARTBEAT_S = 15.0
WRITE_TIMEOUT_S = 30.0
MOST_LINES = 1_000
MOST_BYTES = 512 << 10  # of one page; the part that reaches it is still in it
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class LogHandler:
    """Both forms of the route."""

    def __init__(self, context: Context, reader: JobReader, watch: JobWatch, tails: LogTails) -> None:
        self._context, self._reader, self._watch, self._tails = context, reader, watch, tails

    async def logs(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Show what was printed, or follow it."""
        check_query(request, frozenset({"cursor", "limit"}))
        shown = await self._reader.need(caller, request.match_info["id"])
        self._reader.check_content(shown)
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._follow(request, caller, shown)
        return await self._list(request, caller, shown)

    async def _list(self, request: web.Request, caller: Caller, shown: Shown) -> web.Response:
        """Answer with up to `limit` lines; a running job always has a cursor to go on from."""
        limit = read_limit(request, MOST_LINES)
        place, question = Place(), f"{caller.tenant_id}\n{request.path}"
        if (cursor := request.query.get("cursor")) is not None:
            try:
                place = read_place(unseal(self._context.secret("cursors"), question, cursor)) or place
            except BadCursor:
                raise Problem("bad_cursor") from None
        lines: list[JsonObject] = []
        size_bytes, has_more = 0, False
        while not has_more and (printed := await self._next(caller, shown, place)) is not None:
            found, place = _lines(printed, limit - len(lines))
            lines += found
            size_bytes += len(printed.data)
            has_more = len(lines) >= limit or size_bytes >= MOST_BYTES
        is_over = shown.state.terminal and not has_more
        sealed = None if is_over else seal(self._context.secret("cursors"), question, str(place))
        return json_answer({"data": lines, "hasMore": has_more, "nextCursor": sealed})

    async def _next(self, caller: Caller, shown: Shown, place: Place) -> Printed | None:
        """Return what comes next, without waiting for anything."""
        files, state = self._context.files, shown.state
        while place.fence <= state.fence:
            found = await stored(files, caller.tenant_id, state.id, place.fence)
            if found is not None:
                if (printed := await read_stored(files, found, place)) is not None:
                    return printed
            elif is_running(state, place.fence):
                return _first(place, await self._recent(shown))
            place = place.next_attempt
        return None

    async def _recent(self, shown: Shown) -> list[Piece]:
        return await self._context.within(self._context.store.live.recent(shown.meta.name, shown.state.id))

    async def _follow(self, request: web.Request, caller: Caller, shown: Shown) -> web.StreamResponse:
        place = read_place(request.headers.get("Last-Event-ID", "")) or Place()
        is_back = shown.state.terminal and "Last-Event-ID" in request.headers
        if is_back and await self._next(caller, shown, place) is None:
            return web.Response(status=204)  # the one answer after which a browser does not come back
        response = web.StreamResponse(headers=_HEADERS)
        stamp(response, request[REQUEST_ID])
        with self._tails.follow(caller.tenant_id, shown.meta.name, shown.state.id) as feed:
            await response.prepare(request)
            if request.method != "HEAD":
                await self._send(request, caller, shown, _Stream(response, place), feed)
        return response

    async def _send(
        self, request: web.Request, caller: Caller, shown: Shown, stream: "_Stream", feed: Feed
    ) -> None:  # fmt: skip
        ended = asyncio.create_task(self._wake_when_ended(shown, feed))
        try:
            await self._stream(caller, shown, stream, feed)
        except (TimeoutError, ConnectionError):  # the reader is gone, or does not read
            if request.transport is not None:
                request.transport.abort()  # what it did not take would wait in memory for as long as it likes
        finally:
            ended.cancel()

    async def _wake_when_ended(self, shown: Shown, feed: Feed) -> None:
        while not await self._watch.wait(shown.meta.name, shown.state.id, HEARTBEAT_S):
            if feed.is_over:
                return
            await asyncio.sleep(1)  # it answers at once while the store is away
        feed.wake()

    async def _stream(self, caller: Caller, shown: Shown, stream: "_Stream", feed: Feed) -> None:
        await stream.write(b"retry: 2000\n\n")
        while not feed.is_over:
            try:
                now = await self._reader.find(caller, shown.state.id)
                if now is None:
                    await stream.end("forgotten")
                    return
                await self._catch_up(caller, now, stream)
                if now.state.terminal:
                    await stream.end("terminal")
                    return
                await stream.show(feed.take(again=True))
            except (Problem, HeadraceError):  # the store is away for a while: what comes is not lost by waiting
                await stream.write(b": hb\n\n")
                await asyncio.sleep(1)
                continue
            await self._stream_pieces(stream, feed)
        await stream.end("going_away")

    async def _catch_up(self, caller: Caller, now: Shown, stream: "_Stream") -> None:
        """Send the stored logs of what has ended."""
        files, state = self._context.files, now.state
        while stream.place.fence <= state.fence:
            found = await stored(files, caller.tenant_id, state.id, stream.place.fence)
            if found is None and is_running(state, stream.place.fence):
                return
            while found is not None and (printed := await read_stored(files, found, stream.place)) is not None:
                await stream.print(printed)
            stream.place = stream.place.next_attempt

    async def _stream_pieces(self, stream: "_Stream", feed: Feed) -> None:
        """Send what arrives, until there is a reason to look around."""
        while not feed.is_over:
            if not await feed.wait(HEARTBEAT_S):
                await stream.write(b": hb\n\n")
                return
            pieces = feed.take()
            await stream.show(pieces)
            if not pieces or any(each.offset == STORED or each.fence > stream.place.fence for each in pieces):
                return


class _Stream:
    """The events of one follower. `place` is behind what was sent."""

    def __init__(self, response: web.StreamResponse, place: Place) -> None:
        self._response, self.place = response, place

    async def print(self, printed: Printed) -> None:
        data = orjson.dumps({"fence": printed.fence, "offset": printed.offset, "text": printed.text})
        await self.write(b"event: log\nid: %s\ndata: %s\n\n" % (str(printed.after).encode(), data))
        self.place = printed.after

    async def show(self, pieces: list[Piece]) -> None:
        """Send what pieces add; a hole before one of them is told."""
        for piece in pieces:
            printed, missing = follow_on(self.place, piece)
            if missing:
                data = orjson.dumps({"fence": piece.fence, "offset": self.place.offset, "bytes": missing})
                await self.write(b"event: gap\ndata: %s\n\n" % data)
            if printed is not None:
                await self.print(printed)

    async def end(self, reason: str) -> None:
        await self.write(b'event: end\ndata: {"reason":"%s"}\n\n' % reason.encode())

    async def write(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._response.write(data)


def _first(place: Place, pieces: list[Piece]) -> Printed | None:
    for piece in pieces:
        printed, _ = follow_on(place, piece)
        if printed is not None:
            return printed
    return None


def _lines(printed: Printed, most: int) -> tuple[list[JsonObject], Place]:
    """Cut it into lines, which know where they begin, and the place behind them; the last may go on elsewhere."""
    lines: list[JsonObject] = []
    offset = printed.offset
    for line in printed.data.splitlines(keepends=True)[:most]:
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        lines.append({"fence": printed.fence, "offset": offset, "text": text})
        offset += len(line)
    return lines, Place(printed.fence, offset)

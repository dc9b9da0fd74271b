"""`/v1/events/export`: events as lines of JSON, from some place to where the log ends when it is asked for.

Promises: memory does not grow with the export; its last line says how many lines there are and the SHA-256 of their
bytes, so that an export without it, or with another one, is not whole. Whoever was cut off goes on behind the last
line of each pool.
"""

import asyncio
import hashlib

import orjson
from aiohttp import web
from aiohttp.web_response import ContentCoding

from contracts.envelope import JsonObject
from contracts.errors import HeadraceError
from contracts.exports import END
from contracts.positions import Position, parse_position
from services.ingest.edge.middleware import REQUEST_ID, stamp
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import FILTERS, EventQuery, read_places, read_query
from services.ingest.events.scan import Scan
from services.ingest.handlers.answers import check_query
from services.ingest.tenancy import Caller

AT_ONCE = 200
WRITE_TIMEOUT_S = 30.0
_HEADERS = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class ExportHandler:
    """Streams events."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader

    async def export_events(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Stream the tenant's events."""
        check_query(request, FILTERS | {"cursor"})
        after = read_places(request.query.get("after"))
        filters = {name: value for name, value in request.query.items() if name != "after"}
        query = read_query(filters, caller.tenant_id, self._reader.digest_of_user)
        scan = await self._reader.scan_to_end(query, request.query.get("cursor"), after)
        first = await self._step(scan)  # what is wrong with the question shows here, while there is an answer to give
        response = web.StreamResponse(headers=_HEADERS)
        if _takes_gzip(request.headers.get("Accept-Encoding", "")):
            if request.method == "HEAD":  # also an empty gzip is a body
                response.headers["Content-Encoding"] = "gzip"
            else:
                response.enable_compression(ContentCoding.gzip)
        stamp(response, request[REQUEST_ID])
        await response.prepare(request)
        if request.method != "HEAD":
            try:
                await self._send(response, query, scan, first)
            except (TimeoutError, ConnectionError, HeadraceError, Problem):  # the reader is gone, or the store is
                if request.transport is not None:
                    request.transport.abort()  # without its last line: whoever reads it knows that it is not whole
                return response
        await response.write_eof()
        return response

    async def _step(self, scan: Scan) -> list[JsonObject]:
        """Return the next events, each with its hash if it is sealed."""
        views = await scan.step(AT_ONCE)
        placed = [parse_position(str(view["position"])) for view in views]
        hashes: dict[Position, str] = {}
        for name, code in scan.codes.items():
            of_pool = [place for place in placed if place.pool_code == code]
            found = await self._reader.hashes.of(name, [place.entry for place in of_pool]) if of_pool else {}
            hashes |= {place: found[place.entry] for place in of_pool if place.entry in found}
        return [
            view | {"hash": hashes[place]} if place in hashes else view
            for view, place in zip(views, placed, strict=True)
        ]

    async def _send(self, response: web.StreamResponse, query: EventQuery, scan: Scan, views: list[JsonObject]) -> None:
        digest, count = hashlib.sha256(), 0
        while True:
            lines = b"".join(orjson.dumps(view) + b"\n" for view in views)
            digest.update(lines)
            count += len(views)
            await _write(response, lines)
            if scan.is_over:
                break
            views = await self._step(scan)
        end = {
            "type": END,
            "count": count,
            "sha256": digest.hexdigest(),
            "nextCursor": self._reader.cursor(query, scan),
        }
        await _write(response, orjson.dumps(end) + b"\n")


async def _write(response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(data)


def _takes_gzip(accepted: str) -> bool:
    """Tell whether a client takes gzip.

    >>> _takes_gzip("br, gzip;q=0.5"), _takes_gzip("gzip;q=0"), _takes_gzip("")
    (True, False, False)
    """
    for part in accepted.lower().split(","):
        coding, _, quality = part.replace(" ", "").partition(";q=")
        if coding in ("gzip", "*"):
            return quality.rstrip("0").rstrip(".") not in ("0", "") if quality else True
    return False

"""`GET /v1/artifacts/{id}` and `/content`: what is known of a stored file, and its bytes, whole or a range.

Promises: served from the file and its record alone, also after the job is forgotten, until the record's expiry; a
foreign file is answered like one that is not there; author-made content is never run by a browser as ours. Where the
store can serve it, the caller is sent there with a link that works for LINK_S.
"""

import asyncio

from aiohttp import web

from contracts.artifacts import Content
from contracts.signed_url import is_valid
from services.ingest.context import Context
from services.ingest.edge.conditional import (
    ByteRange,
    Unsatisfiable,
    etag,
    is_unchanged,
    parse_range,
    range_still_applies,
)
from services.ingest.edge.middleware import REQUEST_ID, stamp
from services.ingest.edge.problems import Problem
from services.ingest.files import Found
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.routes import Authenticate
from services.ingest.tenancy import Caller
from services.ingest.views.jobs import artifact_view

LINK_S = 300
WRITE_TIMEOUT_S = 30.0


class ArtifactHandler:
    """Routes below `/v1/artifacts/{id}`."""

    def __init__(self, context: Context, authenticate: Authenticate) -> None:
        self._context = context
        self._authenticate = authenticate

    async def get_artifact(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what is known of the file."""
        check_query(request, frozenset())
        found = await self._need(request.match_info["id"], caller.tenant_id)
        return json_answer(artifact_view(found.record, self._context.settings.public_url.rstrip("/")))

    async def content(self, request: web.Request) -> web.StreamResponse:
        """Send the content, or the caller to where it is."""
        tenant_id = await self._tenant_allowed(request)
        found = await self._need(request.match_info["id"], tenant_id)
        files = self._context.files
        method = "HEAD" if request.method == "HEAD" else "GET"
        link = await files.ask(files.shelf.link, method, found.pool, found.record, LINK_S)  # type: ignore[arg-type]
        if link is not None:
            return web.Response(status=302, headers={"Location": link, "Cache-Control": "private, no-store"})
        content = await files.open(found)
        if content is None:
            raise Problem("artifact_not_found")
        try:
            return await self._send(request, found, content)
        finally:
            content.close()

    async def _tenant_allowed(self, request: web.Request) -> str | None:
        """Return the tenant whose files the request may read; None when its signature opens this one path."""
        if "sig" in request.query:
            query = request.query
            now_s = self._context.now_ms() // 1000
            secret = self._context.secret("urls")
            if not is_valid(secret, request.path, query.get("expires", ""), query["sig"], now_s):
                raise Problem("bad_signature")
            return None
        caller = await self._authenticate(request)
        caller.require("jobs:read")
        return caller.tenant_id

    async def _need(self, artifact_id: str, tenant_id: str | None) -> Found:
        found = await self._context.files.find(artifact_id, tenant_id)
        if found is None:
            if await self._context.files.was_erased(artifact_id, tenant_id):
                raise Problem("data_erased", "The file was erased")
            raise Problem("artifact_not_found")
        if found.record.expires_at_ms <= self._context.now_ms():
            raise Problem("data_erased", "The artifact has expired")
        return found

    async def _send(self, request: web.Request, found: Found, content: Content) -> web.StreamResponse:
        tag = etag(content.version if found.is_preview else found.record.sha256)
        headers = _headers(found, tag)
        if is_unchanged(request.headers.get("If-None-Match"), tag):
            return web.Response(status=304, headers=headers)
        part = _part(request, tag, content.size_bytes)
        response = web.StreamResponse(status=200 if part is None else 206, headers=headers)
        if part is not None:
            response.headers["Content-Range"] = part.content_range(content.size_bytes)
        span = part or ByteRange(0, content.size_bytes)
        response.content_length = span.end - span.start
        stamp(response, request[REQUEST_ID])
        await response.prepare(request)
        if request.method != "HEAD":
            await self._stream(response, found, span, content)
        await response.write_eof()
        return response

    async def _stream(self, response: web.StreamResponse, found: Found, span: ByteRange, content: Content) -> None:
        """Copy a span; a reader that takes nothing for WRITE_TIMEOUT_S is cut off."""
        files, whole = self._context.files, span == ByteRange(0, content.size_bytes)
        part = content if whole else await files.open(found, span.start, span.end)
        if part is None or part.version != content.version:
            raise ConnectionError("the file was exchanged while it was sent")
        try:
            while chunk := await files.ask(part.read):
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await response.write(chunk)
        except Problem:
            raise ConnectionError("the file could not be read to its end") from None
        finally:
            part.close()


def _part(request: web.Request, tag: str, size: int) -> ByteRange | None:
    if not range_still_applies(request.headers.get("If-Range"), tag):
        return None
    try:
        return parse_range(request.headers.get("Range"), size)
    except Unsatisfiable:
        raise Problem("range_not_satisfiable", headers={"Content-Range": f"bytes */{size}"}) from None


def _headers(found: Found, tag: str) -> dict[str, str]:
    return {
        "Content-Type": found.record.mime,
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache" if found.is_preview else "private, max-age=3600, immutable",
        "Content-Disposition": _disposition(found.record.file_name),
        # Made by author code from callers' words: whatever it claims to be, it must not act as our page.
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }


def _disposition(file_name: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in file_name)[:100]
    return f'inline; filename="{safe}"'

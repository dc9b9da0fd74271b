"""`GET /v1/artifacts/{id}/content`: the bytes of a stored file, whole or a range, with a key or a signed link.

Promises: served from the file and its record alone, also after the job is forgotten, until the record's expiry; a
foreign file is answered like one that is not there; author-made content is never run by a browser as ours. The path
is built from checked ids only.
"""

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson
from aiohttp import web

from contracts.ids import job_of
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
from services.ingest.routes import Authenticate

CHUNK_BYTES = 256 * 1024
WRITE_TIMEOUT_S = 30.0
_PREVIEW = "_preview"
_STORED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An open file with what its record says. `tag` changes with the content."""

    source: BinaryIO
    size: int
    mime: str
    file_name: str
    tag: str
    is_immutable: bool
    tenant_id: str
    expires_ms: int


class ArtifactHandler:
    """Serves files below the data directory."""

    def __init__(self, context: Context, authenticate: Authenticate) -> None:
        self._context = context
        self._authenticate = authenticate
        self._root = context.settings.data_dir / "artifacts"

    async def content(self, request: web.Request) -> web.StreamResponse:
        """Send the content."""
        artifact_id = request.match_info["id"]
        tenant_id = await self._tenant_allowed(request)
        stored = await asyncio.to_thread(self._open, artifact_id)
        try:
            if tenant_id is not None and stored is not None and stored.tenant_id != tenant_id:
                stored.source.close()
                stored = None
            if stored is None:
                raise Problem("artifact_not_found")
            if stored.expires_ms <= self._context.now_ms():
                raise Problem("data_erased", "The artifact has expired")
            return await self._send(request, stored)
        finally:
            if stored is not None:
                stored.source.close()

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

    def _open(self, artifact_id: str) -> StoredFile | None:
        """Open the file and read its record; None when either is missing. Blocking."""
        meta = self._context.pool_of(artifact_id)
        if meta is None or not artifact_id.startswith("art_"):
            return None
        folder = self._root / meta.name / job_of(artifact_id)
        try:
            record = orjson.loads((folder / f"{artifact_id}.json").read_bytes())
            name = str(record.get("storedAs", artifact_id))
            if not _STORED_NAME.fullmatch(name):
                return None
            source = _open_regular(folder / name)
        except (OSError, orjson.JSONDecodeError):
            return None
        status = os.fstat(source.fileno())
        is_preview = artifact_id.endswith(_PREVIEW)
        return StoredFile(
            source=source,
            size=status.st_size,
            mime=str(record.get("mime") or "application/octet-stream"),
            file_name=str(record.get("fileName") or artifact_id),
            # The one preview of a job is replaced while it is watched; its record may be a step behind.
            tag=etag(status.st_mtime_ns if is_preview else record.get("sha256")),
            is_immutable=not is_preview,
            tenant_id=str(record.get("tenantId")),
            expires_ms=int(record.get("expiresAtMs") or 0),
        )

    async def _send(self, request: web.Request, stored: StoredFile) -> web.StreamResponse:
        headers = _headers(stored)
        if is_unchanged(request.headers.get("If-None-Match"), stored.tag):
            return web.Response(status=304, headers=headers)
        part = _part(request, stored)
        response = web.StreamResponse(status=200 if part is None else 206, headers=headers)
        if part is not None:
            response.headers["Content-Range"] = part.content_range(stored.size)
        span = part or ByteRange(0, stored.size)
        response.content_length = span.end - span.start
        stamp(response, request[REQUEST_ID])
        await response.prepare(request)
        if request.method != "HEAD":
            await _stream(response, stored.source, span)
        await response.write_eof()
        return response


async def _stream(response: web.StreamResponse, source: BinaryIO, span: ByteRange) -> None:
    """Copy a span; a reader that takes nothing for WRITE_TIMEOUT_S is cut off."""
    at = span.start
    while at < span.end:
        chunk = await asyncio.to_thread(os.pread, source.fileno(), min(CHUNK_BYTES, span.end - at), at)
        if not chunk:
            raise ConnectionError("the file became shorter while it was sent")
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write(chunk)
        at += len(chunk)


def _part(request: web.Request, stored: StoredFile) -> ByteRange | None:
    if not range_still_applies(request.headers.get("If-Range"), stored.tag):
        return None
    try:
        return parse_range(request.headers.get("Range"), stored.size)
    except Unsatisfiable:
        raise Problem("range_not_satisfiable", headers={"Content-Range": f"bytes */{stored.size}"}) from None


def _headers(stored: StoredFile) -> dict[str, str]:
    return {
        "Content-Type": stored.mime,
        "ETag": stored.tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600, immutable" if stored.is_immutable else "private, no-cache",
        "Content-Disposition": _disposition(stored.file_name),
        # Made by author code from callers' words: whatever it claims to be, it must not act as our page.
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        "Cross-Origin-Resource-Policy": "cross-origin",
    }


def _disposition(file_name: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in file_name)[:100]
    return f'inline; filename="{safe}"'


def _open_regular(path: Path) -> BinaryIO:
    """Open a file without following a link in its place."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")

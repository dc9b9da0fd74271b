"""`POST /v1/uploads`, the PUT of the bytes where we take them ourselves, and `POST /v1/uploads/{id}/complete`.

Promises: bytes go straight to the object store where there is one; where we take them, it is with a signed link, at
most as many as were announced, once at a time, and at no less than MIN_BYTES_PER_S; a tenant announces no more than
its share of a day; another tenant's upload is answered like none.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import structlog
from aiohttp import web

from contracts.api import UploadCreate
from contracts.artifacts import StoreAway
from contracts.ids import is_upload_id
from contracts.signed_url import is_valid, sign_path
from contracts.telemetry import Logger
from contracts.times import instant
from contracts.waiting import wait
from services.ingest.context import Context
from services.ingest.edge.body import BodyLimits, read_body, receive
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.files import unavailable
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.minting import Mint
from services.ingest.requests import parse_body
from services.ingest.tenancy import Caller
from services.ingest.uploads import Announced, UploadRules, Uploads
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import artifact_view

MIB = 1 << 20
MIN_BYTES_PER_S = 16 << 10
MAX_S = 6 * 3_600.0
SWEEP_S = 3_600.0
_NOTHING: frozenset[str] = frozenset()
_OCTETS = {"Content-Type": "application/octet-stream"}  # with a form's type, a presigned PUT hangs at some stores
log: Logger = structlog.get_logger(service="ingest")


class UploadHandlers:
    """Routes below `/v1/uploads`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._mint = Mint(context.now_ms)
        settings = context.settings
        self._arriving: set[str] = set()
        self._completing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._life_ms = round(settings.inputs.upload_s * 1000)
        self._folder = settings.data_dir.absolute() / "uploads"
        keep_ms = round(settings.retention.artifacts_s * 1000)
        self._uploads = Uploads(context.shelf, UploadRules(settings.inputs.picture_pixels, keep_ms, self._folder))

    async def create_upload(self, request: web.Request, caller: Caller) -> web.Response:
        """Announce a file; 201 with where to PUT it."""
        check_query(request, _NOTHING)
        with self._context.room.share() as share:
            asked = parse_body(UploadCreate, await read_body(request, self._context.body_limits, share))
        most = self._context.settings.inputs.file_bytes
        if asked.bytes > most:
            raise Problem("payload_too_large", f"A file may have {most} bytes at most")
        pool = self._context.pool(next(iter(self._context.pools), ""))
        await self._count(caller.tenant_id, asked.bytes)
        announced = Announced(
            id=self._mint.upload_id(pool.code),
            tenant_id=caller.tenant_id,
            file_name=asked.file_name,
            content_type=asked.content_type,
            bytes=asked.bytes,
            sha256=asked.sha256,
            expires_at_ms=self._context.now_ms() + self._life_ms,
        )
        link = await self._context.files.ask(self._uploads.announce, announced, self._life_ms // 1000)
        return json_answer(self._view(announced, link), 201)

    async def _count(self, tenant_id: str, size_bytes: int) -> None:
        """Count a file against the tenant's day. Raises Problem."""
        per_day = self._context.settings.inputs.tenant_mib_per_day
        mib = max(1, -(-size_bytes // MIB))
        if mib > per_day:
            raise Problem(
                "payload_too_large", f"A tenant may announce {per_day} MiB a day, and this is more in one file"
            )
        taking = self._context.store.claims.take_upload(tenant_id, mib, per_day)
        if wait_ms := await self._context.within(taking):
            detail = f"The tenant may announce {per_day} MiB a day, a file as 1 MiB at least; send fewer, or later"
            extensions = {POLICIES: ["uploadedBytes"]}
            raise Problem("quota_exceeded", detail, retry_after_s=wait_ms / 1000, extensions=extensions)

    async def put(self, request: web.Request) -> web.Response:
        """Take the bytes, with a signed link and no key."""
        query, now_s = request.query, self._context.now_ms() // 1000
        secret = self._context.secret("urls")
        if not is_valid(secret, request.path, query.get("expires", ""), query.get("sig", ""), now_s):
            raise Problem("bad_signature")
        announced = await self._announced(request, None)
        if announced is None:
            raise Problem("upload_not_found")
        with self._alone(announced.id):
            await self._receive(request, announced)
        return web.Response(status=204)

    @contextmanager
    def _alone(self, upload_id: str) -> Iterator[None]:
        """Let a link fill the disk once: it was counted once. Raises Problem."""
        if upload_id in self._arriving:
            extensions = {POLICIES: ["uploadedBytes"]}
            raise Problem("quota_exceeded", "The file is being sent already", extensions=extensions)
        self._arriving.add(upload_id)
        try:
            yield
        finally:
            self._arriving.discard(upload_id)

    async def _receive(self, request: web.Request, announced: Announced) -> None:
        limits = BodyLimits(announced.bytes, MAX_S, grace_s=10, min_bytes_per_s=MIN_BYTES_PER_S)
        try:
            await asyncio.to_thread(partial(self._folder.mkdir, parents=True, exist_ok=True))
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                part = Path(folder, "part")
                file = await asyncio.to_thread(part.open, "wb")
                try:
                    await receive(request, limits, lambda chunk: asyncio.to_thread(file.write, chunk))
                finally:
                    await asyncio.to_thread(file.close)
                await self._context.files.ask(self._uploads.take, announced.id, part)
        except OSError as error:  # the disk is full, say
            raise unavailable(error) from None

    async def complete(self, request: web.Request, caller: Caller) -> web.Response:
        """Check what was sent and keep it; 200 with the artifact, also when it was completed before."""
        check_query(request, _NOTHING)
        one_by_one = self._completing.setdefault(request.match_info["id"], asyncio.Lock())
        async with one_by_one:
            return await self._complete(request, caller)

    async def _complete(self, request: web.Request, caller: Caller) -> web.Response:
        files, now_ms = self._context.files, self._context.now_ms()
        announced = await self._announced(request, caller.tenant_id)
        if announced is None:
            found = await files.find(request.match_info["id"], caller.tenant_id)
            if found is None or not is_upload_id(found.record.id):
                raise Problem("upload_not_found")
            return json_answer(artifact_view(found.record, self._public_url))
        if announced.expires_at_ms <= now_ms:
            raise Problem("data_erased", "The upload has expired; announce it again")
        meta = self._context.pool_of(announced.id)
        assert meta is not None
        record = await files.ask(self._uploads.complete, announced, meta.name, now_ms)
        return json_answer(artifact_view(record, self._public_url))

    async def sweep(self, stop: asyncio.Event) -> None:
        """Remove what nobody completed, now and then, until `stop`."""
        while not stop.is_set():
            try:
                before_ms = self._context.now_ms() - 2 * self._life_ms
                swept = await self._context.files.ask(self._uploads.sweep, before_ms)
                if swept:
                    log.info("uploads_swept", objects=swept)
            except (Problem, StoreAway):
                pass  # the next time
            await wait(stop, SWEEP_S)

    async def _announced(self, request: web.Request, tenant_id: str | None) -> Announced | None:
        upload_id = request.match_info["id"]
        if not is_upload_id(upload_id) or self._context.pool_of(upload_id) is None:
            raise Problem("upload_not_found")
        announced = await self._context.files.ask(self._uploads.find, upload_id)
        if announced is not None and tenant_id not in (None, announced.tenant_id):
            raise Problem("upload_not_found")
        return announced

    @property
    def _public_url(self) -> str:
        return self._context.settings.public_url.rstrip("/")

    def _view(self, announced: Announced, link: str | None) -> JsonObject:
        path = f"/v1/uploads/{announced.id}"
        if link is None:
            secret = self._context.secret("urls")
            link = self._public_url + sign_path(secret, f"{path}/content", announced.expires_at_ms // 1000)
        return {
            "id": announced.id,
            "object": "upload",
            "method": "PUT",
            "url": link,
            "headers": _OCTETS,
            "bytes": announced.bytes,
            "expiresAt": instant(announced.expires_at_ms),
            "urls": {"complete": f"{path}/complete", "artifact": f"/v1/artifacts/{announced.id}"},
        }

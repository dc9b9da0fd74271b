"""`POST /admin/v1/events/import`: an export as the log of pools that have none yet, to look at what happened elsewhere.

Promises: as many bytes as the operator allows, into a file and not into memory; nothing is written before the sum of
the last line, the order and every job's sequence were checked; then all of it at once, or nothing. One at a time.
"""

import asyncio
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from aiohttp import web

from contracts import events as ev
from contracts.errors import Rejected
from contracts.exports import BadExport, Checked, check, records
from contracts.store import keys
from contracts.store.imports import import_logs
from services.ingest.context import Context
from services.ingest.edge.body import BodyLimits, receive
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import ConfiguredHandlers, need_reason
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller

MEDIA_TYPE = "application/x-ndjson"
MAX_S, MIN_BYTES_PER_S = 3_600.0, 16 << 10


class ImportHandler(ConfiguredHandlers):
    """Takes an export in."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mint = Mint(context.now_ms)
        self._turn = asyncio.Lock()
        self._folder = context.settings.data_dir.absolute() / "imports"
        self._limits = BodyLimits(
            context.settings.ingest.import_bytes, MAX_S, grace_s=10, min_bytes_per_s=MIN_BYTES_PER_S
        )

    async def import_events(self, request: web.Request, caller: Caller) -> web.Response:
        """Import what `GET /v1/events/export` without filters gave."""
        check_query(request, frozenset({"reason"}))
        reason = need_reason(request)
        if request.content_type != MEDIA_TYPE:
            raise Problem("unsupported_media_type", f"Content-Type is {MEDIA_TYPE}")
        if self._turn.locked():  # one may take an hour, and who waits holds a connection
            raise Problem("overloaded", "Another import is under way")
        async with self._turn:
            await asyncio.to_thread(partial(self._folder.mkdir, parents=True, exist_ok=True))
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                path = Path(folder, "export")
                await self._receive(request, path)
                checked, counts = await self._import(path)
        for name, count in counts.items():
            done = ev.AuditAction(action="events.import", target=name, count=count, **caller.signed(reason))
            await self._context.within(self._context.store.note(keys.SYSTEM, name, done, self._mint.token()))
        return json_answer(
            {"object": "import", "pools": counts, "jobs": checked.jobs, "sha256": checked.sha256}, 201
        )  # fmt: skip

    async def _receive(self, request: web.Request, path: Path) -> None:
        file = await asyncio.to_thread(path.open, "wb")
        try:
            await receive(request, self._limits, lambda chunk: asyncio.to_thread(file.write, chunk))
        finally:
            await asyncio.to_thread(file.close)

    async def _import(self, path: Path) -> tuple[Checked, dict[str, int]]:
        try:
            checked = await asyncio.to_thread(_check, path)
            known = {meta.code: name for name, meta in self._context.pools.items()}
            if unknown := set(checked.codes) - known.keys():
                raise BadExport(f"it holds events of pools {sorted(unknown)}, and here are {sorted(known)}")
            with ExitStack() as files:
                logs = {known[code]: records(files.enter_context(path.open("rb")), code) for code in checked.codes}
                return checked, await import_logs(self._context.store, logs, self._mint.token())
        except BadExport as fault:
            raise Problem("bad_export", f"Nothing was imported: {fault}") from None
        except Rejected as refused:
            raise Problem("log_not_empty", refused.detail) from None


def _check(path: Path) -> Checked:
    with path.open("rb") as file:
        return check(file)

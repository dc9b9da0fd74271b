"""`/v1/audit`: is the live state the truth, and was the log altered? Asked here, done by a process of its own, polled.

Promises: one audit at a time; a tenant's key has its own jobs audited and sees its own audits, an operator's all; a
repair is an operator's, carries a reason, and is an event for each row it makes anew.
"""

from aiohttp import web

from contracts import ids
from contracts.archive import Archive
from contracts.archive.checkpoints import SECRET, is_genuine, public_of, read_checkpoint
from contracts.archive.reading import Gone
from contracts.asked_audit import AskedAudit
from contracts.audit_api import AuditCreate, RepairCreate
from contracts.events import AuditAction, LogCheckpointed
from contracts.positions import Position, entry_ms
from contracts.store import keys
from contracts.store.store import PoolMeta
from contracts.times import instant
from services.ingest.audits.views import audit_view
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

AGAIN_S = 10
MOST_LOOKED_AT = 20_000  # entries, for one page of checkpoints


class AuditHandlers(ConfiguredHandlers):
    """Asks for audits and repairs, shows them, lists checkpoints."""

    def __init__(self, context: Context, archive: Archive) -> None:
        super().__init__(context)
        self._archive, self._mint = archive, Mint(context.now_ms)

    async def create_audit(self, request: web.Request, caller: Caller) -> web.Response:
        """Have it looked at."""
        asked = await self._read_or_default(request, AuditCreate)
        tenant_id = _tenant_of(caller, asked.tenant_id)
        await self._check(asked.pool, asked.job_id, tenant_id)
        audit = AskedAudit(
            f"aud_{self._mint.token()}", "" if caller.is_operator else caller.tenant_id, caller.key_id,
            pool=asked.pool or "", job_id=asked.job_id or "", tenant_id=tenant_id, after=asked.after or "",
            until=asked.until or "", asked_ms=self._context.now_ms(),
        )  # fmt: skip
        return await self._ask(audit)

    async def create_repair(self, request: web.Request, caller: Caller) -> web.Response:
        """Have what differs from the log made anew."""
        asked = await self._read(request, RepairCreate)
        await self._check(asked.pool, asked.job_id, asked.tenant_id or "")
        audit = AskedAudit(
            f"aud_{self._mint.token()}", "", caller.key_id, asked.reason, repairs=True, pool=asked.pool or "",
            job_id=asked.job_id or "", tenant_id=asked.tenant_id or "", asked_ms=self._context.now_ms(),
        )  # fmt: skip
        target = audit.job_id or audit.tenant_id or audit.pool
        return await self._ask(
            audit, AuditAction(action="audit.repair", target=target, **caller.signed(asked.reason))
        )  # fmt: skip

    async def get_audit(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what came of it, or that it is under way."""
        check_query(request, NOTHING)
        known = await self._context.within(self._context.store.audit_work.all(keys.SYSTEM))
        found = next((each for each in known if each.id == request.match_info["id"]), None)
        if found is None or not (caller.is_operator or found.owner == caller.tenant_id):
            raise Problem("audit_not_found", "There is none, or it was over a day ago")
        return json_answer(audit_view(found))

    async def list_checkpoints(self, request: web.Request, caller: Caller) -> web.Response:
        """List what was signed of a pool's log, oldest first; a page looks at a bounded stretch and may be empty."""
        check_query(request, frozenset({"pool", "limit", "cursor"}))
        meta = self._pool(request.query.get("pool") or next(iter(self._context.pools), "default"))
        question = f"checkpoints\n{meta.name}"
        place = self._place(question, request.query.get("cursor")) or None
        found, behind = await self._checkpoints(meta, place, read_limit(request))
        return page_answer(request, list(found), self._cursor(question, behind))

    async def _ask(self, audit: AskedAudit, action: AuditAction | None = None) -> web.Response:
        work = self._context.store.audit_work
        if any(not each.done_ms for each in await self._context.within(work.all(keys.SYSTEM))):
            raise Problem("audit_under_way", retry_after_s=AGAIN_S)
        if action is not None:
            await self._context.within(self._context.store.note(keys.SYSTEM, audit.id, action, audit.id))
        if not await self._context.within(work.ask(keys.SYSTEM, audit)):
            raise Problem("audit_under_way", "So many were asked for that their results must be forgotten first")
        view = audit_view(audit)
        return json_answer(view, 202, {"Location": view["urls"]["self"]})

    async def _check(self, pool: str | None, job_id: str | None, tenant_id: str) -> None:
        if pool is not None and pool != keys.SYSTEM:
            self._pool(pool)
        if job_id is None:
            return
        meta = self._context.pool_of(job_id) if ids.is_job_id(job_id) else None
        if meta is None:
            raise Problem("job_not_found")
        if tenant_id:
            found = await self._context.within(self._context.store.jobs.tenants(meta.name, [job_id]))
            if found.get(job_id) != tenant_id:
                raise Problem("job_not_found")

    def _pool(self, name: str) -> PoolMeta:
        if name not in self._context.pools:
            raise Problem("pool_not_found")
        return self._context.pools[name]

    async def _checkpoints(
        self, meta: PoolMeta, after: str | None, limit: int
    ) -> tuple[list[JsonObject], str | None]:  # fmt: skip
        """Return checkpoints behind a place, and the place at which to go on, None at the end."""
        public = public_of(await self._context.within(self._context.store.directory.secret(SECRET)))
        found, looked_at, at = list[JsonObject](), 0, after
        try:
            async for batch in self._archive.read(meta.name, after):
                for record in batch:
                    if (said := read_checkpoint(record)) is not None:
                        found.append(_checkpoint(meta, record.position, said, public))
                    if len(found) == limit:
                        return found, record.position
                looked_at, at = looked_at + len(batch), batch[-1].position
                if looked_at >= MOST_LOOKED_AT:
                    return found, at
        except Gone:
            raise Problem("cursor_expired") from None
        return found, None


def _checkpoint(meta: PoolMeta, at: str, said: LogCheckpointed, public: bytes) -> JsonObject:
    return {
        "pool": meta.name,
        "at": str(Position(meta.code, meta.epoch, at)),
        "time": instant(entry_ms(at)),
        "position": str(Position(meta.code, said.epoch, said.position)),
        "count": said.count,
        "hash": said.hash,
        "keyId": said.key_id,
        "signature": said.signature,
        "genuine": is_genuine(meta.name, said, public),
    }


def _tenant_of(caller: Caller, asked: str | None) -> str:
    """Return the tenant an audit is limited to. Raises Problem `tenant_not_found`."""
    if caller.is_operator:
        return asked or ""
    if asked not in (None, caller.tenant_id):
        raise Problem("tenant_not_found")
    return caller.tenant_id

"""`/admin/v1/retention`: how long what has ended is kept, of all, of one pool, of one tenant.

Promises: a change holds within a second, also for what has ended already; what is kept for longer than the least that
anybody has is looked at again each hour, so a shorter time of a tenant's own may take as long to hold.
"""

from aiohttp import web

from contracts import events as ev
from contracts.admin_api import RetentionPatch
from contracts.retention import Kept, Scope, from_settings, kept
from contracts.tenant import Configuration
from services.ingest.edge.problems import Fault, Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import ConfiguredHandlers, find_tenant
from services.ingest.requests import invalid_input
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

_SCOPE = frozenset({"pool", "tenantId"})
_KNOBS = {"completedSeconds": "completed_s", "failedSeconds": "failed_s", "liveSeconds": "live_s"}
NOTHING_SAID = ev.RetentionFacts()


class RetentionHandlers(ConfiguredHandlers):
    """Reads and changes what is kept."""

    async def get_retention(self, request: web.Request, caller: Caller) -> web.Response:
        """Show what holds for all, or for a pool or a tenant, and where something else holds."""
        check_query(request, _SCOPE)
        state = self._configuration()
        return json_answer(self._view(self._scope(request, state), state))

    async def patch_retention(self, request: web.Request, caller: Caller) -> web.Response:
        """Change what is given; null goes back to the next wider scope."""
        wanted = await self._read(request, RetentionPatch, _SCOPE)
        pool, tenant_id = scope = self._scope(request, self._configuration())
        if pool and tenant_id:
            raise Problem("bad_parameter", "A change is of a pool or of a tenant, not of both")
        if tenant_id and wanted.live_seconds is not None:
            raise invalid_input((Fault("/liveSeconds", "contradiction", "the log is a pool's, not a tenant's"),))

        def decide(state: Configuration) -> ev.Event | None:
            known = state.retention.get(scope, NOTHING_SAID)
            facts = _patched(known, wanted)
            if facts == known:
                return None
            return ev.RetentionChanged(
                pool=pool or None, tenant_id=tenant_id or None, retention=facts, previous=known,
                **caller.signed(wanted.reason),
            )  # fmt: skip

        return json_answer(self._view(scope, await self._change(decide, pool or tenant_id or "retention")))

    def _scope(self, request: web.Request, state: Configuration) -> Scope:
        pool, tenant_id = request.query.get("pool", ""), request.query.get("tenantId", "")
        if pool and pool not in self._context.pools:
            raise Problem("pool_not_found")
        if tenant_id:
            find_tenant(state, tenant_id)
        return pool, tenant_id

    def _view(self, scope: Scope, state: Configuration) -> JsonObject:
        pool, tenant_id = scope
        settings = self._context.settings.retention
        said = state.retention.get(scope, NOTHING_SAID).model_dump(exclude_none=True)
        overrides = [
            {"pool": pool or None, "tenantId": tenant_id or None} | _facts_view(facts)
            for (pool, tenant_id), facts in sorted(state.retention.items())
            if facts != NOTHING_SAID
        ]
        return {
            "object": "retention",
            "pool": pool or None,
            "tenantId": tenant_id or None,
            **_view(kept(from_settings(settings), state.retention, pool, tenant_id)),
            "changed": [shown for shown, name in _KNOBS.items() if name in said],
            "overrides": overrides,
            "idempotencySeconds": settings.idempotency_s,
            "artifactsSeconds": settings.artifacts_s,
            "usageSeconds": settings.usage_s,
        }


def _patched(known: ev.RetentionFacts, wanted: RetentionPatch) -> ev.RetentionFacts:
    given = wanted.model_dump(by_alias=True, exclude_unset=True, exclude={"reason"})
    facts = known.model_dump() | {_KNOBS[shown]: value for shown, value in given.items()}
    return ev.RetentionFacts.model_validate(facts)


def _view(it: Kept) -> JsonObject:
    return {shown: getattr(it, name) for shown, name in _KNOBS.items()}


def _facts_view(facts: ev.RetentionFacts) -> JsonObject:
    return {shown: getattr(facts, name) for shown, name in _KNOBS.items()}

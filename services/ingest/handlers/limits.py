"""`GET /v1/limits`: what a tenant may have, what of it is in use in each pool, and when the rest comes back."""

import asyncio

from aiohttp import web

from contracts.events import TenantLimits
from contracts.questions import TenantUse
from contracts.settings import Settings
from contracts.store.replies import Submits
from contracts.store.vitals import Usage, read_usage
from contracts.times import instant
from services.ingest.admission.verdict import limits_for
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.rates import DAY_S, GpuLeft, rate_headers, refill_s

DAY_MS = DAY_S * 1000


class LimitsHandler:
    """Asks the store for what admission counts, and the leader of each pool for what it counts."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def limits(self, request: web.Request, caller: Caller) -> web.Response:
        """Show the tenant's limits, their use in each pool, and when they are whole again."""
        check_query(request, frozenset())
        context = self._context
        tenant = context.store.directory.configuration.tenants.get(caller.tenant_id)
        if tenant is None:
            raise Problem("tenant_not_found")
        pools = list(context.pools)
        used = await asyncio.gather(*(self._used(pool, tenant.id) for pool in pools))
        submits = await self._submits(tenant.id, tenant.limits)
        now_ms = context.readiness.server_ms() or context.now_ms()
        resets_ms = (now_ms // DAY_MS + 1) * DAY_MS
        gpu = gpu_left(tenant.limits, [told for _, told in used], resets_ms - now_ms)
        view: JsonObject = {
            "tenantId": tenant.id,
            "tier": tenant.tier,
            "weight": tenant.weight,
            "paused": tenant.paused,
            "limits": _limits_view(tenant.limits, context.settings),
            "use": {pool: _use_view(*each) for pool, each in zip(pools, used, strict=True)},
            "submits": _submits_view(tenant.limits, submits),
            "budgetResetsAt": instant(resets_ms),
        }
        return json_answer(view, headers=rate_headers(tenant.limits, submits, gpu))

    async def _submits(self, tenant_id: str, limits: TenantLimits) -> Submits | None:
        if limits.submits_per_minute is None:
            return None
        looking = self._context.store.claims.take_submit(tenant_id, limits.submits_per_minute, only_look=True)
        return await self._context.within(looking)

    async def _used(self, pool: str, tenant_id: str) -> tuple[Usage, TenantUse | None]:
        counted = self._context.within(read_usage(self._context.store.client, pool, tenant_id))
        return await asyncio.gather(counted, self._context.asker.use(pool, tenant_id))


def _limits_view(limits: TenantLimits, settings: Settings) -> JsonObject:
    held = limits_for(limits, settings.admission)
    return limits.model_dump(by_alias=True) | {
        "queuedJobs": held.tenant_jobs,
        "queuedBytes": held.tenant_bytes,
        "bodyBytes": settings.ingest.body_bytes,
    }


def _use_view(counted: Usage, told: TenantUse | None) -> JsonObject:
    return {
        "queuedJobs": counted.open_jobs,
        "queuedBytes": counted.open_bytes,
        "running": None if told is None else told.running,
        "gpuSeconds": None if told is None else told.gpu_ms_today / 1000,
    }


def _submits_view(limits: TenantLimits, submits: Submits | None) -> JsonObject | None:
    if submits is None or limits.submits_per_minute is None:
        return None
    return {"left": submits.left, "refillSeconds": refill_s(limits.submits_per_minute, submits)}


def gpu_left(limits: TenantLimits, told: list[TenantUse | None], left_ms: int) -> GpuLeft | None:
    """Return the least that is left in any pool: the budget holds in each by itself."""
    used_ms = [each.gpu_ms_today for each in told if each is not None]
    if limits.gpu_seconds_per_day is None or not used_ms:
        return None
    return GpuLeft(max(0, limits.gpu_seconds_per_day - -(-max(used_ms) // 1000)), -(-left_ms // 1000))

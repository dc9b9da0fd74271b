"""Pause and resume: pool, tenant, model. What runs goes on; nothing of what is paused is offered any more.

Promises: each change is one event with who and why; what is so already is answered as done and writes nothing.
"""

from collections.abc import Callable

from aiohttp import web

from contracts import events as ev
from contracts.admin_api import Because
from contracts.tenant import Configuration
from services.ingest.edge.problems import Problem
from services.ingest.handlers.admin import tenant_view
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.configured import ConfiguredHandlers, find_tenant
from services.ingest.handlers.pools import pool_view
from services.ingest.requests import no_such_model
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

IsPaused = Callable[[Configuration], bool]


class PauseHandlers(ConfiguredHandlers):
    """Routes that end with `/pause` and `/resume`."""

    async def pause_pool(self, request: web.Request, caller: Caller) -> web.Response:
        """Offer nothing of the pool any more."""
        return await self._set_pool(request, caller, ev.PoolPaused)

    async def resume_pool(self, request: web.Request, caller: Caller) -> web.Response:
        """Serve the pool again."""
        return await self._set_pool(request, caller, ev.PoolResumed)

    async def pause_tenant(self, request: web.Request, caller: Caller) -> web.Response:
        """Offer nothing of the tenant any more; it may still submit."""
        return await self._set_tenant(request, caller, ev.TenantPaused)

    async def resume_tenant(self, request: web.Request, caller: Caller) -> web.Response:
        """Serve the tenant again."""
        return await self._set_tenant(request, caller, ev.TenantResumed)

    async def pause_model(self, request: web.Request, caller: Caller) -> web.Response:
        """Offer no job of the model any more, in no pool; `name` means all its versions."""
        return await self._set_model(request, caller, ev.ModelPaused)

    async def resume_model(self, request: web.Request, caller: Caller) -> web.Response:
        """Serve the model again; takes back a pause under exactly this name."""
        return await self._set_model(request, caller, ev.ModelResumed)

    async def _set_pool(
        self, request: web.Request, caller: Caller, kind: type[ev.PoolPaused] | type[ev.PoolResumed]
    ) -> web.Response:
        because, name = await self._read(request, Because), request.match_info["pool"]
        event = kind(pool=name, **caller.signed(because.reason))

        def is_paused(state: Configuration) -> bool:
            if name not in self._context.pools:
                raise Problem("pool_not_found")
            return name in state.paused_pools

        await self._set(name, event, is_paused, to=kind is ev.PoolPaused)
        return json_answer(await pool_view(self._context, name))

    async def _set_tenant(
        self, request: web.Request, caller: Caller, kind: type[ev.TenantPaused] | type[ev.TenantResumed]
    ) -> web.Response:
        because, tenant_id = await self._read(request, Because), request.match_info["tenant"]
        event = kind(tenant_id=tenant_id, **caller.signed(because.reason))
        is_pause = kind is ev.TenantPaused
        state = await self._set(tenant_id, event, lambda state: find_tenant(state, tenant_id).paused, to=is_pause)
        return json_answer(tenant_view(state.tenants[tenant_id]))

    async def _set_model(
        self, request: web.Request, caller: Caller, kind: type[ev.ModelPaused] | type[ev.ModelResumed]
    ) -> web.Response:
        because, name = await self._read(request, Because), request.match_info["model"]
        event = kind(model=name, **caller.signed(because.reason))
        known = self._context.models.find(name)

        def is_paused(state: Configuration) -> bool:
            # What is gone from the file may still be paused, and must not stay so for ever.
            if known is None and name not in state.paused_models:
                raise no_such_model(self._context.models, state.paused_models)
            return name in state.paused_models

        state = await self._set(name, event, is_paused, to=kind is ev.ModelPaused)
        return json_answer(paused_view(name, state))

    async def _set(self, subject: str, event: ev.Event, is_paused: IsPaused, *, to: bool) -> Configuration:
        return await self._change(lambda state: None if is_paused(state) is to else event, subject)


def paused_view(name: str, state: Configuration) -> JsonObject:
    """Say whether a model is paused and under which names: pausing `draw` pauses `draw@1`, too."""
    base, _, version = name.partition("@")
    of_model = {each for each in state.paused_models if each.partition("@")[0] == base}
    under = sorted(of_model & {base, name} if version else of_model)
    return {"name": name, "object": "model", "paused": state.is_model_paused(name), "pausedAs": under}

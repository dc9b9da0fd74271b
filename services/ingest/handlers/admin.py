"""Tenants and keys: configuration as events, each write with who did it and why."""

import secrets

from aiohttp import web

from contracts import events as ev
from contracts.admin_api import KeyCreate, TenantCreate, TenantPatch
from contracts.endpoints import tenant_secret
from contracts.errors import Rejected
from contracts.tenant import ApiKey, Configuration, Tenant
from contracts.times import instant
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers, find_tenant, read_reason
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller, digest_of, write_key
from services.ingest.views.body_lines import JsonObject


class AdminHandlers(ConfiguredHandlers):
    """Routes below `/admin/v1/tenants`, but for pauses."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mint = Mint(context.now_ms)

    async def create_tenant(self, request: web.Request, caller: Caller) -> web.Response:
        """Create a tenant; its webhook secret is shown this once."""
        wanted = await self._read(request, TenantCreate)
        secret = self._mint.webhook_secret()
        limits = ev.TenantLimits(**wanted.limits.model_dump(by_alias=False))

        def decide(state: Configuration) -> ev.Event:
            if wanted.id in state.tenants:
                raise Rejected("already_exists", f"There is a tenant {wanted.id} already")
            return ev.TenantCreated(
                tenant_id=wanted.id,
                tier=wanted.tier,
                weight=wanted.weight,
                limits=limits,
                webhook_hosts=wanted.webhook_hosts,
                **caller.signed(wanted.reason),
            )

        state = await self._change(decide, wanted.id, {tenant_secret(wanted.id): secret})
        view = tenant_view(state.tenants[wanted.id]) | {"webhookSecret": secret}
        return json_answer(view, 201, {"Location": f"/admin/v1/tenants/{wanted.id}"})

    async def list_tenants(self, request: web.Request, caller: Caller) -> web.Response:
        """List all tenants by id."""
        tenants = self._configuration().tenants
        return self._page(request, "tenants", {name: tenant_view(tenant) for name, tenant in tenants.items()})

    async def get_tenant(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one tenant."""
        check_query(request, NOTHING)
        return json_answer(tenant_view(find_tenant(self._configuration(), request.match_info["tenant"])))

    async def patch_tenant(self, request: web.Request, caller: Caller) -> web.Response:
        """Change what is given, leave the rest."""
        wanted = await self._read(request, TenantPatch)
        tenant_id = request.match_info["tenant"]

        def decide(state: Configuration) -> ev.Event:
            tenant = find_tenant(state, tenant_id)
            changed = wanted.limits.model_dump(exclude_unset=True, by_alias=False) if wanted.limits else {}
            return ev.TenantUpdated(
                tenant_id=tenant_id,
                tier=wanted.tier or tenant.tier,
                weight=tenant.weight if wanted.weight is None else wanted.weight,
                limits=tenant.limits.model_copy(update=changed),
                webhook_hosts=wanted.webhook_hosts
                if "webhook_hosts" in wanted.model_fields_set
                else tenant.webhook_hosts,
                **caller.signed(wanted.reason),
            )

        state = await self._change(decide, tenant_id)
        return json_answer(tenant_view(state.tenants[tenant_id]))

    async def create_key(self, request: web.Request, caller: Caller) -> web.Response:
        """Create a key; it is shown this once, only its digest is kept."""
        wanted = await self._read(request, KeyCreate)
        tenant_id = request.match_info["tenant"]
        part = self._mint.token()
        key = write_key(part, secrets.token_urlsafe(32))
        created = ev.KeyCreated(
            tenant_id=tenant_id,
            key_id=f"key_{part}",
            sha256=digest_of(key),
            scopes=tuple(dict.fromkeys(wanted.scopes)),
            **caller.signed(wanted.reason),
        )

        def decide(state: Configuration) -> ev.Event:
            find_tenant(state, tenant_id)
            return created

        state = await self._change(decide, created.key_id)
        view = _key_view(state.keys[created.key_id]) | {"key": key}
        return json_answer(view, 201, {"Location": f"/admin/v1/tenants/{tenant_id}/keys/{created.key_id}"})

    async def list_keys(self, request: web.Request, caller: Caller) -> web.Response:
        """List a tenant's keys, without the keys themselves."""
        tenant_id = request.match_info["tenant"]
        state = self._configuration()
        find_tenant(state, tenant_id)
        keys = {name: _key_view(key) for name, key in state.keys.items() if key.tenant_id == tenant_id}
        return self._page(request, f"keys\n{tenant_id}", keys)

    async def get_key(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one key, without the key itself."""
        check_query(request, NOTHING)
        return json_answer(_key_view(_key(self._configuration(), request)))

    async def revoke_key(self, request: web.Request, caller: Caller) -> web.Response:
        """Revoke a key; it stops working at once."""
        check_query(request, frozenset({"reason"}))
        reason = read_reason(request)
        key_id = request.match_info["key"]

        def decide(state: Configuration) -> ev.Event:
            key = _key(state, request)
            return ev.KeyRevoked(tenant_id=key.tenant_id, key_id=key.id, **caller.signed(reason))

        await self._change(decide, key_id)
        return web.Response(status=204)


def _key(state: Configuration, request: web.Request) -> ApiKey:
    key = state.keys.get(request.match_info["key"])
    if key is None or key.tenant_id != request.match_info["tenant"]:
        raise Problem("key_not_found")
    return key


def tenant_view(tenant: Tenant) -> JsonObject:
    """Return a tenant as it is shown."""
    return {
        "id": tenant.id,
        "object": "tenant",
        "tier": tenant.tier,
        "weight": tenant.weight,
        "paused": tenant.paused,
        "limits": tenant.limits.model_dump(by_alias=True),
        "webhookHosts": None if tenant.webhook_hosts is None else list(tenant.webhook_hosts),
        "createdAt": instant(tenant.created_ms),
    }


def _key_view(key: ApiKey) -> JsonObject:
    return {
        "id": key.id,
        "object": "key",
        "tenantId": key.tenant_id,
        "scopes": list(key.scopes),
        "createdAt": instant(key.created_ms),
    }

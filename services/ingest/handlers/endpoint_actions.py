"""What can be done with an endpoint: a new secret, on and off.

Promises: a new secret is in this one answer; the old one signs beside it for as long as was asked for.
"""

from aiohttp import web

from contracts import events as ev
from contracts.endpoints import Private, endpoint_secret, tenant_secret
from contracts.tenant import Configuration
from contracts.times import instant
from contracts.webhook_api import SecretRotate
from services.ingest.context import Context
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers, find_tenant
from services.ingest.handlers.one_endpoint import find_endpoint, read_kept, switch_off, switch_on
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.webhooks import endpoint_view


class EndpointActionHandlers(ConfiguredHandlers):
    """Routes below `/v1/webhook-endpoints/{id}/`, and the rotation of a tenant's own secret."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mint = Mint(context.now_ms)

    async def rotate_endpoint_secret(self, request: web.Request, caller: Caller) -> web.Response:
        """Give the endpoint a new secret; the old one signs, too, for `overlapSeconds`."""
        wanted = await self._read_or_default(request, SecretRotate)
        endpoint = find_endpoint(self._configuration(), caller, request.match_info["id"])
        secret, now_ms = self._mint.webhook_secret(), self._context.now_ms()
        until_ms = now_ms + wanted.overlap_seconds * 1000
        rotated = ev.EndpointSecretRotated(
            tenant_id=caller.tenant_id,
            endpoint_id=endpoint.id,
            old_until_ms=until_ms,
            by=caller.key_id,
            reason=wanted.reason or None,
        )

        def decide(state: Configuration, private: Private) -> tuple[ev.Event, Private]:
            find_endpoint(state, caller, endpoint.id)
            return rotated, private.rotated(secret, now_ms, until_ms)

        directory = self._context.store.directory
        await self._context.within(directory.rewrite(endpoint_secret(endpoint.id), decide, endpoint.id))
        return _rotated(secret, until_ms)

    async def rotate_own_secret(self, request: web.Request, caller: Caller) -> web.Response:
        """Give the caller's tenant a new secret for the webhooks of its jobs."""
        return await self._rotate_tenant(request, caller, caller.tenant_id)

    async def rotate_tenant_secret(self, request: web.Request, caller: Caller) -> web.Response:
        """The same by the operator, for any tenant."""
        return await self._rotate_tenant(request, caller, request.match_info["tenant"])

    async def enable_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Send to it again."""
        return await self._switch(request, caller, on=True)

    async def disable_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Send nothing to it any more."""
        return await self._switch(request, caller, on=False)

    async def _rotate_tenant(self, request: web.Request, caller: Caller, tenant_id: str) -> web.Response:
        wanted = await self._read_or_default(request, SecretRotate)
        secret, now_ms = self._mint.webhook_secret(), self._context.now_ms()
        until_ms = now_ms + wanted.overlap_seconds * 1000
        rotated = ev.TenantWebhookSecretRotated(
            tenant_id=tenant_id, old_until_ms=until_ms, **caller.signed(wanted.reason)
        )

        def decide(state: Configuration, private: Private) -> tuple[ev.Event, Private]:
            find_tenant(state, tenant_id)
            return rotated, private.rotated(secret, now_ms, until_ms)

        directory = self._context.store.directory
        await self._context.within(directory.rewrite(tenant_secret(tenant_id), decide, tenant_id))
        return _rotated(secret, until_ms)

    async def _switch(self, request: web.Request, caller: Caller, *, on: bool) -> web.Response:
        check_query(request, NOTHING)
        endpoint = find_endpoint(self._configuration(), caller, request.match_info["id"])
        await (switch_on if on else switch_off)(self._context, endpoint, caller.key_id)
        endpoint = find_endpoint(self._configuration(), caller, endpoint.id)
        return json_answer(endpoint_view(endpoint, await read_kept(self._context, endpoint)))


def _rotated(secret: str, until_ms: int) -> web.Response:
    return json_answer({"object": "webhook_secret", "secret": secret, "oldSecretUntil": instant(until_ms)})

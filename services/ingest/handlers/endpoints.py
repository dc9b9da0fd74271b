"""`/v1/webhook-endpoints`: where a tenant wants its events sent.

Promises: a secret is in the answer that made it and in no other; a URL or header that would not be called is refused
when it is set, without any connection; an endpoint of somebody else is answered exactly as one that never was; what
is so already is not written again.
"""

import asyncio
import hashlib

import orjson
from aiohttp import web

from contracts import events as ev
from contracts.endpoints import Endpoint, Private, endpoint_secret
from contracts.store.deliveries import ENDPOINT_DELETED
from contracts.store.words import Word
from contracts.tenant import Configuration
from contracts.webhook_api import EndpointCreate, EndpointPatch
from services.ingest.admission.admit import read_key
from services.ingest.context import Context
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.endpoint_changes import created, kept, patched
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.handlers.one_endpoint import find_endpoint, hold, read_kept, switch_off, switch_on
from services.ingest.minting import Mint
from services.ingest.targets import check_target
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.webhooks import endpoint_view

PATH = "/v1/webhook-endpoints"


class EndpointHandlers(ConfiguredHandlers):
    """Create, list, show, change, delete."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mint = Mint(context.now_ms)

    async def create_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Create an endpoint; 201 with its secret, 200 without it for a repeat of the same Idempotency-Key."""
        wanted = await self._read(request, EndpointCreate)
        key_hash = read_key(only_header(request, "Idempotency-Key"))
        check_target(self._context, caller.tenant_id, wanted.url, "/url")
        endpoint_id, is_new = await self._claim(caller, key_hash, wanted)
        secret = self._mint.webhook_secret()
        if is_new:
            is_new = await self._create(caller, wanted, endpoint_id, secret)
        if is_new and wanted.disabled:
            await switch_off(self._context, find_endpoint(self._configuration(), caller, endpoint_id), caller.key_id)
        if key_hash is not None:
            call = self._context.store.claims.done(caller.tenant_id, key_hash, endpoint_id, "created")
            await self._context.within(call)
        view = await self._view(find_endpoint(self._configuration(), caller, endpoint_id))
        if not is_new:
            return json_answer(view, headers={"Idempotent-Replayed": "true"})
        return json_answer(view | {"secret": secret}, 201, {"Location": f"{PATH}/{endpoint_id}"})

    async def list_endpoints(self, request: web.Request, caller: Caller) -> web.Response:
        """List the tenant's endpoints, oldest first."""
        endpoints = self._configuration().endpoints_of(caller.tenant_id)
        views = await asyncio.gather(*map(self._view, endpoints))
        return self._page(request, f"{caller.tenant_id}\nendpoints", {view["id"]: view for view in views})

    async def get_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one endpoint, without its secrets."""
        check_query(request, NOTHING)
        return json_answer(await self._view(self._endpoint(request, caller)))

    async def patch_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Change what is given, leave the rest."""
        wanted = await self._read(request, EndpointPatch)
        endpoint = self._endpoint(request, caller)
        if wanted.url is not None:
            check_target(self._context, caller.tenant_id, wanted.url, "/url")

        def decide(state: Configuration, private: Private) -> tuple[ev.Event, Private] | None:
            return patched(find_endpoint(state, caller, endpoint.id), private, wanted, caller.key_id)

        directory = self._context.store.directory
        await self._context.within(directory.rewrite(endpoint_secret(endpoint.id), decide, endpoint.id))
        if wanted.disabled is not None:
            turn = switch_off if wanted.disabled else switch_on
            await turn(self._context, endpoint, caller.key_id)
        return json_answer(await self._view(self._endpoint(request, caller)))

    async def delete_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Delete an endpoint with all that is kept of it; what waits for it is not sent any more."""
        check_query(request, NOTHING)
        endpoint = self._endpoint(request, caller)
        gone = ev.EndpointDeleted(tenant_id=caller.tenant_id, endpoint_id=endpoint.id, by=caller.key_id)

        def decide(state: Configuration, _: Private) -> tuple[ev.Event, None]:
            find_endpoint(state, caller, endpoint.id)
            return gone, None

        directory = self._context.store.directory
        await self._context.within(directory.rewrite(endpoint_secret(endpoint.id), decide, endpoint.id))
        await hold(self._context, endpoint.name, ENDPOINT_DELETED)
        return web.Response(status=204)

    def _endpoint(self, request: web.Request, caller: Caller) -> Endpoint:
        return find_endpoint(self._configuration(), caller, request.match_info["id"])

    async def _view(self, endpoint: Endpoint) -> JsonObject:
        return endpoint_view(endpoint, await read_kept(self._context, endpoint))

    async def _claim(self, caller: Caller, key_hash: str | None, wanted: EndpointCreate) -> tuple[str, bool]:
        """Return the id under which to create, and whether that has not been done yet. Raises Problem."""
        candidate = self._mint.endpoint_id()
        if key_hash is None:
            return candidate, True
        text = b"endpoint\n" + orjson.dumps(wanted.model_dump(), option=orjson.OPT_SORT_KEYS)
        seal, ttl_s = hashlib.sha256(text).hexdigest(), int(self._context.settings.retention.idempotency_s)
        call = self._context.store.claims.claim(caller.tenant_id, key_hash, seal, candidate, "", ttl_s)
        claim = await self._context.within(call)
        if claim.word is not Word.APPLIED:
            raise Problem("idempotency_mismatch", "This Idempotency-Key was used for another request")
        return claim.job_id, claim.state in ("new", "pending")

    async def _create(self, caller: Caller, wanted: EndpointCreate, endpoint_id: str, secret: str) -> bool:
        """Create it unless it is there; a claim that stays pending is taken up by the next repeat."""
        event = created(wanted, endpoint_id, caller.tenant_id, caller.key_id)
        made: list[bool] = []

        def decide(state: Configuration) -> ev.Event | None:
            made[:] = [endpoint_id not in state.endpoints]
            if not made[0]:
                return None
            self._check_count(state, caller)
            return event

        await self._change(decide, endpoint_id, {endpoint_secret(endpoint_id): kept(wanted, secret).to_json()})
        return made[0]

    def _check_count(self, state: Configuration, caller: Caller) -> None:
        most = self._context.settings.webhook.tenant_endpoints
        if len(state.endpoints_of(caller.tenant_id)) >= most:
            detail = f"A tenant may have {most} webhook endpoints; delete one first"
            raise Problem("quota_exceeded", detail, extensions={POLICIES: ["webhookEndpoints"]})

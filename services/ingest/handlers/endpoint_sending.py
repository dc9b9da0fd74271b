"""What makes an endpoint be sent something: a test, recovery of what failed, a backfill; and how it has done so far.

Promises: nothing is sent from here, the notifiers do that, so a test tells what a real event would meet; what is
asked for twice is sent once more and no oftener than asked.
"""

import asyncio

from aiohttp import web

from contracts import events as ev
from contracts.backfills import Backfill
from contracts.deliveries import PlannedDelivery
from contracts.endpoints import Endpoint
from contracts.ids import delivery_id, event_id
from contracts.times import ms_of
from contracts.webhook_api import Since
from services.ingest.context import Context
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.handlers.delivery_reading import DeliveryReader
from services.ingest.handlers.one_endpoint import check_enabled, find_endpoint, read_kept, too_many_backfills
from services.ingest.minting import Mint
from services.ingest.targets import check_target
from services.ingest.tenancy import Caller
from services.ingest.views.webhook_ping import TEST_EVENT, ping
from services.ingest.views.webhook_stats import backfill_view, stats_view
from services.ingest.views.webhooks import delivery_view

REVIVED_AT_ONCE = 500
MOST_CALLS = 20  # of one pool in one request


class EndpointSendingHandlers(ConfiguredHandlers):
    """Routes below `/v1/webhook-endpoints/{id}/` that lead to deliveries."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reader = DeliveryReader(context)
        self._mint = Mint(context.now_ms)

    async def test_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Send a made-up event; 202 with the delivery, whose attempts tell what came of it."""
        check_query(request, NOTHING)
        endpoint = self._enabled(request, caller)
        kept = await read_kept(self._context, endpoint)
        check_target(self._context, caller.tenant_id, "" if kept is None else kept.url, "/url")
        meta = self._context.pool(next(iter(self._context.pools), ""))
        job_id, now_ms = self._mint.job_id(meta.code), self._context.now_ms()
        body = ping(endpoint.format, endpoint.id, caller.tenant_id, job_id, now_ms, self._context.place(meta))
        content = {"content": "application/cloudevents+json"} if endpoint.format == "cloudevents" else {}
        planned = PlannedDelivery(
            id=delivery_id(job_id, 1, endpoint.name, 0),
            fields={"event": TEST_EVENT, "message": event_id(job_id, 1), "body": body, **content},
            endpoint=endpoint.name,
            tenant_id=caller.tenant_id,
            job_id=job_id,
            sequence=1,
        )
        await self._context.within(self._context.store.deliveries.plan(meta.name, "", [planned], []))
        found = await self._reader.need(caller.tenant_id, planned.id)
        where = {"Location": f"/v1/webhook-deliveries/{found.id}"}
        return json_answer(delivery_view(found.id, found.fields), 202, where)

    async def recover_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Send again what failed or was held in a time; while `hasMore`, call again."""
        wanted = await self._read(request, Since)
        endpoint = self._enabled(request, caller)
        asked = self._requested(endpoint, caller, wanted, "recover")
        count, has_more = 0, False
        for pool in self._context.pools:
            await self._context.within(self._context.store.note(pool, endpoint.id, asked, self._mint.token()))
            revived, is_more = await self._revive(pool, endpoint, asked)
            count, has_more = count + revived, has_more or is_more
        return json_answer(self._operation(has_more) | {"recovered": count})

    async def backfill_endpoint(self, request: web.Request, caller: Caller) -> web.Response:
        """Send what happened in a time and was never sent; the notifiers read it from the log."""
        wanted = await self._read(request, Since)
        endpoint = self._enabled(request, caller)
        asked = self._requested(endpoint, caller, wanted, "backfill")
        now_ms = self._context.now_ms()
        backfill = Backfill(
            id=f"op_{self._mint.token()}",
            endpoint_id=endpoint.id,
            tenant_id=caller.tenant_id,
            since_ms=asked.since_ms or 0,
            until_ms=asked.until_ms or now_ms,
            asked_ms=now_ms,
        )
        for pool in self._context.pools:
            await self._context.within(self._context.store.note(pool, endpoint.id, asked, self._mint.token()))
            if not await self._context.within(self._context.store.backfills.ask(pool, backfill)):
                raise too_many_backfills()
        return json_answer({"id": backfill.id, "object": "operation", "state": "in_progress"}, 202)

    async def endpoint_stats(self, request: web.Request, caller: Caller) -> web.Response:
        """Say how the endpoint has done in the last 24 hours, and what waits for it."""
        check_query(request, NOTHING)
        endpoint = find_endpoint(self._configuration(), caller, request.match_info["id"])
        rows = await self._reader.rows(endpoint.name)
        store = self._context.store
        asked = await asyncio.gather(*(self._context.within(store.backfills.all(pool)) for pool in self._context.pools))
        mine = [backfill for of_pool in asked for backfill in of_pool if backfill.endpoint_id == endpoint.id]
        view = stats_view(endpoint, rows, self._context.now_ms())
        return json_answer(view | {"backfills": backfill_view(mine)})

    def _enabled(self, request: web.Request, caller: Caller) -> Endpoint:
        endpoint = find_endpoint(self._configuration(), caller, request.match_info["id"])
        check_enabled(endpoint)
        return endpoint

    async def _revive(self, pool: str, endpoint: Endpoint, asked: ev.RedeliveryRequested) -> tuple[int, bool]:
        """Revive what failed in one pool; returns how many, and whether there may be more."""
        count = 0
        for _ in range(MOST_CALLS):
            call = self._context.store.deliveries.revive(
                pool, endpoint.name, asked.since_ms or 0, asked.until_ms, REVIVED_AT_ONCE
            )
            revived = await self._context.within(call)
            count += revived
            if revived < REVIVED_AT_ONCE:
                return count, False
        return count, True

    def _requested(
        self, endpoint: Endpoint, caller: Caller, wanted: Since, how: ev.RedeliveryHow
    ) -> ev.RedeliveryRequested:
        return ev.RedeliveryRequested(
            tenant_id=caller.tenant_id,
            how=how,
            endpoint_id=endpoint.id,
            since_ms=ms_of(wanted.since),
            until_ms=ms_of(wanted.until),
            **caller.signed(wanted.reason),
        )

    def _operation(self, has_more: bool) -> dict[str, object]:
        state = "in_progress" if has_more else "completed"
        return {"id": f"op_{self._mint.token()}", "object": "operation", "state": state, "hasMore": has_more}

"""`/v1/webhook-deliveries` and `/v1/jobs/{id}/deliveries`.

Promises: every attempt is shown with its time, status, latency and what comes next; a redelivery carries the same
message id and bytes.
"""

import asyncio

from aiohttp import web

from contracts import events as ev
from contracts.backfills import Backfill
from contracts.ids import BadId, endpoint_of, event_id, event_of, parse_job_id
from contracts.ids import delivery_id as delivery_id_of
from services.ingest.context import Context
from services.ingest.delivery_filter import NAMES, PAGE, DeliveryFilter, read_filter
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.handlers.delivery_reading import DeliveryReader, FoundDelivery, Listed, check_redelivered
from services.ingest.handlers.one_endpoint import check_receives, too_many_backfills
from services.ingest.handlers.read import job_not_found
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.webhooks import attempts_view, delivery_view, details_view


def erased() -> Problem:
    """Return what is said of sending again what an erased job said."""
    return Problem("data_erased", "The job was erased: what was sent about it is gone")


class DeliveryHandlers(ConfiguredHandlers):
    """Lists, shows and sends again, for the owner."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reader = DeliveryReader(context)
        self._mint = Mint(context.now_ms)

    async def list_deliveries(self, request: web.Request, caller: Caller) -> web.Response:
        """List the tenant's deliveries, newest job first."""
        check_query(request, NAMES | PAGE)
        return await self._list(request, caller.tenant_id, read_filter(list(request.query.items())))

    async def get_delivery(self, request: web.Request, caller: Caller) -> web.Response:
        """Show a delivery with the bytes it sends."""
        check_query(request, NOTHING)
        found = await self._need(request, caller)
        return json_answer(details_view(found.id, await self._reader.all_fields(found) | found.fields))

    async def list_attempts(self, request: web.Request, caller: Caller) -> web.Response:
        """List the attempts of a delivery, first to last."""
        check_query(request, NOTHING)
        found = await self._need(request, caller)
        return page_answer(request, list(attempts_view(await self._reader.all_fields(found))), None)

    async def list_deliveries_of_job(self, request: web.Request, caller: Caller) -> web.Response:
        """List a job's deliveries, each with its attempts; also when the job itself is forgotten."""
        check_query(request, PAGE)
        job_id = request.match_info["id"]
        try:
            wanted = DeliveryFilter(job_id=parse_job_id(job_id))
        except BadId:
            raise job_not_found() from None
        history = None
        if meta := self._context.pool_of(job_id):
            history = await self._context.within(self._context.store.jobs.history(meta.name, job_id, limit=0))
        is_mine = history is not None and history.state.tenant_id == caller.tenant_id
        return await self._list(request, caller.tenant_id, wanted, with_attempts=True, may_be_empty=is_mine)

    async def redeliver(self, request: web.Request, caller: Caller) -> web.Response:
        """Send a delivery again; the answer is the one that will be sent, which may be a new one.

        One that is forgotten is rendered again from its event, by a notifier, within about a second.
        """
        check_query(request, NOTHING)
        try:
            found = await self._need(request, caller)
        except Problem as problem:
            return await self._render_again(request.match_info["id"], caller, problem)
        if found.fields.get("state") == "erased":
            raise erased()
        check_receives(self._configuration(), found.fields.get("endpoint", ""))
        event = ev.RedeliveryRequested(
            tenant_id=caller.tenant_id, how="redeliver", delivery_id=found.id, by=caller.key_id
        )
        store, write_id = self._context.store, self._mint.token()
        await self._context.within(store.note(found.meta.name, found.id, event, write_id))
        made = await self._context.within(store.deliveries.redeliver(found.meta.name, found.id, write_id))
        again = await self._reader.need(caller.tenant_id, check_redelivered(made))
        where = {"Location": f"/v1/webhook-deliveries/{again.id}"}
        return json_answer(delivery_view(again.id, again.fields), 202, where)

    async def _render_again(self, delivery_id: str, caller: Caller, not_found: Problem) -> web.Response:
        try:
            name, (job_id, sequence) = endpoint_of(delivery_id), event_of(delivery_id)
        except BadId:
            raise not_found from None
        store, meta = self._context.store, self._context.pool_of(delivery_id)
        if meta is None:
            raise not_found
        history = await self._context.within(store.jobs.history(meta.name, job_id, after=sequence - 1))
        told = [] if history is None else [entry for entry in history.entries if entry.sequence == sequence]
        if history is None or history.state.tenant_id != caller.tenant_id or not told:
            raise not_found
        if history.state.erased_ms is not None:
            raise erased()
        endpoint = self._configuration().endpoint_by_name(name)
        if endpoint is not None and endpoint.tenant_id != caller.tenant_id:
            raise not_found
        check_receives(self._configuration(), name)
        event = ev.RedeliveryRequested(
            tenant_id=caller.tenant_id, how="redeliver", delivery_id=delivery_id, by=caller.key_id
        )
        await self._context.within(store.note(meta.name, delivery_id, event, self._mint.token()))
        asked = Backfill(
            id=f"op_{self._mint.token()}",
            endpoint_id=name if endpoint is None else endpoint.id,
            tenant_id=caller.tenant_id,
            since_ms=0,
            until_ms=0,
            asked_ms=self._context.now_ms(),
            job_id=job_id,
            sequence=sequence,
        )
        if not await self._context.within(store.backfills.ask(meta.name, asked)):
            raise too_many_backfills()
        message, again = event_id(job_id, sequence), delivery_id_of(job_id, sequence, name, 0)
        fields = {"endpoint": name, "job": job_id, "event": told[0].type, "message": message, "state": "waiting"}
        return json_answer(delivery_view(again, fields), 202, {"Location": f"/v1/webhook-deliveries/{again}"})

    async def _need(self, request: web.Request, caller: Caller) -> FoundDelivery:
        return await self._reader.need(caller.tenant_id, request.match_info["id"])

    async def _list(
        self, request: web.Request, tenant_id: str, wanted: DeliveryFilter, *, with_attempts: bool = False,
        may_be_empty: bool = True,
    ) -> web.Response:  # fmt: skip
        question = f"{tenant_id}\ndeliveries\n{wanted.canonical}"
        below = self._place(question, request.query.get("cursor"))
        page = await self._reader.page(tenant_id, wanted, below, read_limit(request))
        if not page.listed and not below and not may_be_empty:
            raise job_not_found()
        views: list[object] = [delivery_view(*each) for each in page.listed]
        if with_attempts:
            views = list(await asyncio.gather(*(self._with_attempts(tenant_id, each) for each in page.listed)))
        return page_answer(request, views, self._cursor(question, page.below))

    async def _with_attempts(self, tenant_id: str, listed: Listed) -> JsonObject:
        delivery_id, fields = listed
        meta = self._context.pool_of(delivery_id)
        kept = {} if meta is None else await self._reader.all_fields(FoundDelivery(meta, delivery_id, fields))
        return delivery_view(delivery_id, fields) | {"attemptsMade": attempts_view(kept)}

"""Webhook endpoints and deliveries across tenants, for the operator.

Promises: of an endpoint only the origin is shown; a dry run writes nothing; a redelivery is an event with its reason
before it begins. A call takes MOST_REDELIVERED deliveries at most and says how to go on; nothing goes on behind it.
"""

import asyncio
from itertools import groupby

from aiohttp import web

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.webhook_api import DeliveriesRedeliver
from services.ingest.context import Context
from services.ingest.delivery_filter import NAMES, PAGE, REDELIVERABLE, DeliveryFilter, filter_of, read_filter
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit
from services.ingest.handlers.configured import ConfiguredHandlers
from services.ingest.handlers.delivery_reading import DeliveryReader, Listed, check_redelivered
from services.ingest.handlers.one_endpoint import check_receives
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.webhooks import admin_endpoint_view, delivery_view

AT_ONCE = 50
SAMPLE = 10
MOST_REDELIVERED = 1_000
MOST_TENANTS = 200  # looked at in one call


class AdminWebhookHandlers(ConfiguredHandlers):
    """Routes below `/admin/v1/` about webhooks."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reader = DeliveryReader(context)
        self._mint = Mint(context.now_ms)

    async def admin_list_endpoints(self, request: web.Request, caller: Caller) -> web.Response:
        """List endpoints of all tenants, or of one, by id."""
        tenant = request.query.get("tenantId")
        endpoints = self._configuration().endpoints
        views = {
            name: admin_endpoint_view(endpoint)
            for name, endpoint in endpoints.items()
            if tenant in (None, endpoint.tenant_id)
        }
        return self._page(request, f"endpoints\n{tenant}", views, frozenset({"tenantId"}))

    async def admin_list_deliveries(self, request: web.Request, caller: Caller) -> web.Response:
        """List deliveries across tenants: by tenant, then newest job first."""
        check_query(request, NAMES | PAGE | {"tenantId"})
        wanted, limit = read_filter(list(request.query.items())), read_limit(request)
        question = f"admin deliveries\n{wanted.canonical}"
        listed, place = await self._across(wanted, self._place(question, request.query.get("cursor")), limit)
        views: list[object] = [delivery_view(*each) | {"tenantId": tenant} for tenant, each in listed]
        return page_answer(request, views, self._cursor(question, place))

    async def redeliver_many(self, request: web.Request, caller: Caller) -> web.Response:
        """Send again, or only count, what a filter means; the answer is the operation so far."""
        asked = await self._read(request, DeliveriesRedeliver)
        wanted = filter_of(asked.filter, states=REDELIVERABLE)
        question = f"redeliver\n{asked.dry_run}\n{wanted.canonical}"
        found, place = await self._across(wanted, self._place(question, asked.cursor), MOST_REDELIVERED)
        listed, cursor = one_of_each([each for _, each in found]), self._cursor(question, place)
        done, failures = 0, list[JsonObject]()
        if listed and not asked.dry_run:
            await self._note(asked, wanted, caller)
            done, failures = await self._redeliver_all(listed)
        return json_answer({
            "id": f"op_{self._mint.token()}", "object": "operation", "dryRun": asked.dry_run,
            "state": "completed" if cursor is None else "in_progress",
            "matched": len(listed), "redelivered": done, "failed": len(failures), "failures": failures,
            "sample": [delivery_id for delivery_id, _ in listed[:SAMPLE]],
            "hasMore": cursor is not None, "nextCursor": cursor,
        })  # fmt: skip

    async def _across(
        self, wanted: DeliveryFilter, place: str, most: int
    ) -> tuple[list[tuple[str, Listed]], str | None]:
        """Return up to `most` deliveries of all tenants that fit, and the place to go on from."""
        begun, _, below = place.partition(" ")
        asked = [each for each in self._configuration().tenants if each >= begun and wanted.tenant_id in (None, each)]
        found: list[tuple[str, Listed]] = []
        for number, tenant in enumerate(sorted(asked)):
            if number == MOST_TENANTS:
                return found, f"{tenant} "
            page = await self._reader.page(tenant, wanted, below if tenant == begun else "", most - len(found))
            found += [(tenant, each) for each in page.listed]
            if page.below is not None:
                return found, f"{tenant} {page.below}"
        return found, None

    async def _redeliver_all(self, listed: list[Listed]) -> tuple[int, list[JsonObject]]:
        """Send these again; returns how many were, and what went wrong with the others."""
        done, failures = 0, list[JsonObject]()
        for at in range(0, len(listed), AT_ONCE):
            group = listed[at : at + AT_ONCE]
            outcomes = await asyncio.gather(*map(self._redeliver, group), return_exceptions=True)
            for (delivery_id, _), outcome in zip(group, outcomes, strict=True):
                match outcome:
                    case None:
                        done += 1
                    case Problem(code=code) | StoreUnavailable(code=code):
                        failures.append({"id": delivery_id, "code": code})
                    case _:
                        raise outcome
        return done, failures

    async def _redeliver(self, listed: Listed) -> None:
        delivery_id, fields = listed
        check_receives(self._configuration(), fields.get("endpoint", ""))
        meta = self._context.pool_of(delivery_id)
        if meta is None:
            raise Problem("delivery_not_found")
        sending = self._context.store.deliveries.redeliver(meta.name, delivery_id, self._mint.token())
        check_redelivered(await self._context.within(sending))

    async def _note(self, asked: DeliveriesRedeliver, wanted: DeliveryFilter, caller: Caller) -> None:
        event = ev.RedeliveryRequested(
            tenant_id=wanted.tenant_id or "",
            how="redeliver",
            endpoint_id=asked.filter.endpoint_id,
            since_ms=wanted.since_ms,
            until_ms=wanted.until_ms,
            **caller.signed(asked.reason),
        )
        pool = next(iter(self._context.pools), "")
        subject = asked.filter.endpoint_id or wanted.tenant_id or caller.key_id
        await self._context.within(self._context.store.note(pool, subject, event, self._mint.token()))


def one_of_each(listed: list[Listed]) -> list[Listed]:
    """Of several generations of one delivery, which lie side by side, keep one: else each call would double them.

    >>> one_of_each([("dlv_a_5_e_1", {}), ("dlv_a_5_e_0", {}), ("dlv_a_4_e_0", {})])
    [('dlv_a_5_e_1', {}), ('dlv_a_4_e_0', {})]
    """
    return [next(same) for _, same in groupby(listed, key=lambda each: each[0].rpartition("_")[0])]

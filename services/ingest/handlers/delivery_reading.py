"""Reading deliveries for a caller: one, or pages of them. One of somebody else is answered like one that never was.

Promises: a delivery is looked for among those of the caller's tenant, so neither the answer nor its time tells
whether a foreign id exists; a page looks at so many deliveries and no more.
"""

import asyncio
from dataclasses import dataclass

from contracts.deliveries import EndpointRow
from contracts.ids import BadId, endpoint_of
from contracts.store.replies import Redelivered
from contracts.store.store import PoolMeta
from contracts.store.words import Word
from services.ingest.context import Context
from services.ingest.delivery_filter import DeliveryFilter
from services.ingest.edge.problems import Problem

Listed = tuple[str, dict[str, str]]  # id and fields
STEP = 100
MAX_SCANNED = 1_000
_FIRST = " "  # below an id and this lies the id itself, and above it whatever begins with it


@dataclass(frozen=True, slots=True)
class FoundDelivery:
    """A delivery that this caller may see, with the fields a list shows."""

    meta: PoolMeta
    id: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """What fits, newest job first; `below` is the last id looked at, None when there is no other."""

    listed: tuple[Listed, ...]
    below: str | None


class DeliveryReader:
    """Reads through the store's calls about deliveries."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def need(self, tenant_id: str, delivery_id: str) -> FoundDelivery:
        """Return a delivery of the tenant. Raises Problem `delivery_not_found`."""
        meta = self._pool_of(delivery_id)
        if meta is not None:
            page = self._context.store.deliveries.page(
                meta.name, tenant_id, below=delivery_id + _FIRST, limit=1, prefix=delivery_id
            )
            for found_id, fields in await self._context.within(page):
                return FoundDelivery(meta, found_id, fields)
        raise Problem("delivery_not_found", "There is no such delivery, or it is not yours, or its time is over")

    async def all_fields(self, found: FoundDelivery) -> dict[str, str]:
        """Return everything that is kept of a delivery, its attempts and bytes among it."""
        call = self._context.store.deliveries.read(found.meta.name, found.id)
        return await self._context.within(call) or found.fields

    async def page(self, tenant_id: str, wanted: DeliveryFilter, below: str, limit: int) -> DeliveryPage:
        """Return up to `limit` deliveries of a tenant that fit, of the next MAX_SCANNED."""
        fitting: list[Listed] = []
        for _ in range(MAX_SCANNED // STEP):
            listed = await self._next(tenant_id, wanted, below)
            for delivery_id, fields in listed:
                if len(fitting) == limit:
                    return DeliveryPage(tuple(fitting), below)
                below = delivery_id
                if wanted.fits(fields):
                    fitting.append((delivery_id, fields))
            if len(listed) < STEP:
                return DeliveryPage(tuple(fitting), None)
        return DeliveryPage(tuple(fitting), below)

    async def rows(self, name: str) -> tuple[EndpointRow, ...]:
        """Return how an endpoint does in each pool."""
        calls = [self._context.store.deliveries.endpoint(pool, name) for pool in self._context.pools]
        return tuple(await asyncio.gather(*map(self._context.within, calls)))

    async def _next(self, tenant_id: str, wanted: DeliveryFilter, below: str) -> list[Listed]:
        prefix = wanted.prefix
        pools = [meta.name] if prefix and (meta := self._pool_of_job(wanted.job_id)) else list(self._context.pools)
        calls = [
            self._context.store.deliveries.page(pool, tenant_id, below=below, limit=STEP, prefix=prefix)
            for pool in pools
        ]
        pages = await asyncio.gather(*map(self._context.within, calls))
        return sorted((each for page in pages for each in page), key=lambda each: each[0], reverse=True)[:STEP]

    def _pool_of_job(self, job_id: str | None) -> PoolMeta | None:
        return None if job_id is None else self._context.pool_of(job_id)

    def _pool_of(self, delivery_id: str) -> PoolMeta | None:
        try:
            endpoint_of(delivery_id)
        except BadId:
            return None
        return self._context.pool_of(delivery_id)


def check_redelivered(made: Redelivered) -> str:
    """Return the id of the delivery that will be sent. Raises Problem where there is none."""
    if made.word is Word.REFUSED:
        raise Problem("not_redeliverable", "It waits for an earlier event of its job, in strict order")
    if made.word is not Word.APPLIED:
        raise Problem("delivery_not_found", "Its time is over")
    return made.id

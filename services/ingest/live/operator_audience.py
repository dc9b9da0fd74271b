"""Operators: all that happens in pools, whose jobs ever they are, or to workers. Nothing of what jobs show."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from contracts.wire import Entry
from services.ingest.context import Context
from services.ingest.handlers.pools import pool_view
from services.ingest.handlers.workers import WorkerHandlers
from services.ingest.live.hub import Hub
from services.ingest.live.tenant_feed import TenantListener
from services.ingest.live.viewer import Viewed, Viewer
from services.ingest.views.body_lines import JsonObject


class OperatorAudience:
    """`shows`: which types of events; `with_pools`: whether the snapshot shows the pools, too."""

    def __init__(
        self, context: Context, hub: Hub, pools: Sequence[str], *, shows: Callable[[str], bool], with_pools: bool
    ) -> None:  # fmt: skip
        self._context, self._hub, self.pools = context, hub, pools
        self._shows, self._with_pools = shows, with_pools

    def follow(self, pool: str, listener: TenantListener) -> AbstractContextManager[None]:
        return self._hub.of_tenants(pool).follow_all(listener)

    async def view(self, viewer: Viewer, entries: Sequence[Entry]) -> list[Viewed]:
        return await viewer.show(entries, lambda _: True, with_others=True)

    def is_wanted(self, viewed: Viewed) -> bool:
        return self._shows(viewed.type)

    async def snapshot(self) -> JsonObject:
        told: JsonObject = {"workers": await WorkerHandlers(self._context).views(self.pools)}
        if self._with_pools:
            told["pools"] = await asyncio.gather(*(pool_view(self._context, pool) for pool in self.pools))
        return told

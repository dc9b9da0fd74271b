"""Who reads the logs and the workers' streams, and how far each is; a group that nobody reads any more is dropped here.

Promises: what is not known is null; our own groups are not dropped, nor is one that somebody reads, unless it is said.
"""

import asyncio

from aiohttp import web

from contracts import events as ev
from contracts.consumers import Standing
from contracts.store import Word, keys
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query
from services.ingest.handlers.configured import ConfiguredHandlers, need_reason
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller
from services.ingest.views.consumers import OURS, consumer_view, name_of


class ConsumerHandlers(ConfiguredHandlers):
    """Routes below `/admin/v1/consumers`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mint = Mint(context.now_ms)

    async def list_consumers(self, request: web.Request, caller: Caller) -> web.Response:
        """List groups of all pools: those of the log, the archive, and of each worker's stream."""
        pool = request.query.get("pool")
        if pool is not None and pool not in self._context.pools:
            raise Problem("pool_not_found")
        pools = [keys.SYSTEM, *self._context.pools] if pool is None else [pool]
        asked = await asyncio.gather(*map(self._of_pool, pools))
        views = {name_of(each): consumer_view(each, now_ms) for now_ms, found in asked for each in found}
        return self._page(request, f"consumers\n{pool}", views, frozenset({"pool"}))

    async def drop(self, request: web.Request, caller: Caller) -> web.Response:
        """Drop a group of a pool's log."""
        check_query(request, frozenset({"reason", "force"}))
        pool, group = request.match_info["pool"], request.match_info["group"]
        if group in OURS:
            raise Problem("consumer_in_use", f"The group {group} is a part of this installation")
        reason = need_reason(request)
        _, found = await self._of_pool(pool) if pool in {keys.SYSTEM, *self._context.pools} else (0, [])
        standing = next((each for each in found if (each.stream, each.group) == ("log", group)), None)
        if standing is None:
            raise Problem("consumer_not_found")
        event = ev.ConsumerDropped(
            group=group, position=standing.position, pending=standing.pending, **caller.signed(reason)
        )  # fmt: skip
        is_forced = request.query.get("force") == "true"
        dropping = self._context.store.consumers.drop(standing, event, self._mint.token(), force=is_forced)
        reply = await self._context.within(dropping)
        if reply.word is Word.GONE:
            raise Problem("consumer_not_found")
        if not reply.applied:
            raise Problem("consumer_in_use", "Somebody reads it; stop that first, or add force=true")
        return web.Response(status=204)

    async def _of_pool(self, pool: str) -> tuple[int, list[Standing]]:
        store = self._context.store
        workers = [] if pool == keys.SYSTEM else list(await self._context.within(store.workers(pool)))
        return await self._context.within(store.consumers.standings(pool, workers))

"""Whole pools, followed: what was missed in each, or how things are, then every event as it comes.

Promises: an id names a place in each pool; whoever goes on from one has every event that is for him once, but for
previews, or is told of a gap and given how things are. What is in a snapshot may be ahead of the snapshot's place: a
job's `sequence` says which of the events that follow it has in it. There is no end but the client's or ours.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from time import monotonic

from contracts.archive.reading import Gone
from contracts.errors import Corrupt, HeadraceError
from contracts.positions import Position, entry_key, entry_ms
from contracts.wire import Entry
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.live import messages
from services.ingest.live.audience import Audience
from services.ingest.live.hub import Hub
from services.ingest.live.job_stream import HEARTBEAT_S
from services.ingest.live.messages import BEAT, Message
from services.ingest.live.pace import Pace
from services.ingest.live.previews import read_preview
from services.ingest.live.query import Wanted, read_places
from services.ingest.live.subscription import MOST_WAITING, PREVIEW
from services.ingest.live.tenant_feed import TenantListener
from services.ingest.live.viewer import Viewed

AT_ONCE = 500


class LogStream:
    """What one listener is told. `begin`, then iterate `messages`."""

    def __init__(self, context: Context, hub: Hub, audience: Audience, wanted: Wanted) -> None:
        self._context, self._hub, self._audience, self._wanted = context, hub, audience, wanted
        self._pace: Pace[Viewed] = Pace(wanted.min_interval_s)
        self._listener: TenantListener = TenantListener(MOST_WAITING)
        self._places: dict[str, str] = {}
        self._is_live = False

    async def begin(self) -> None:
        """Ask the store for where the logs end. Raises StoreUnavailable."""
        self._ends = await self._ends_of_logs()

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Tell what there is, with a beat where nothing is; ends after `end`."""
        with ExitStack() as stack:
            try:
                if self._wanted.after is not None:
                    self._places = self._named_places(self._wanted.after)
                    async for message in self._missed():  # most of it, before anything begins to wait
                        yield message
                await self._listen(stack)
                if self._wanted.after is None:
                    yield await self._snapshot()
                else:
                    async for message in self._missed():
                        yield message
            except (Gone, Corrupt) as lost:
                await self._listen(stack)
                yield messages.gap(self._wanted.after, lost.first or None if isinstance(lost, Gone) else None)
                yield await self._snapshot()
            self._is_live = True
            async for message in self._live():
                yield message

    async def _live(self) -> AsyncGenerator[Message, None]:
        listener = self._listener
        while not (listener.is_over or listener.is_slow):
            has_news = await listener.wait(self._pace.wait_s(monotonic(), HEARTBEAT_S))
            shown = self._to_tell()
            for viewed in shown:
                for message in await self._tell(viewed):
                    yield message
            if listener.is_lost:
                async for message in self._after_a_hole():
                    yield message
            elif not (has_news or shown):
                yield BEAT
        yield messages.end("slow_consumer" if listener.is_slow else "going_away")

    async def _after_a_hole(self) -> AsyncGenerator[Message, None]:
        yield messages.gap(self._id(), None)
        while not self._listener.is_over:
            self._listener.begin_again()
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._have_begun()
                    yield await self._snapshot()
                return
            except (TimeoutError, HeadraceError, Problem):
                yield BEAT
                await asyncio.sleep(1)

    async def _listen(self, stack: ExitStack) -> None:
        for pool in self._audience.pools:
            stack.enter_context(self._audience.follow(pool, self._listener))
        self._listener.is_over = self._hub.is_over
        await self._have_begun()

    async def _have_begun(self) -> None:
        for pool in self._audience.pools:
            await self._hub.feed(pool).begun()

    def _named_places(self, text: str) -> dict[str, str]:
        """Return the place in each pool. Raises Gone when one is not named, of another log, or ahead of it."""
        named = {(each.pool_code, each.epoch): each.entry for each in read_places(text)}
        places = {}
        for name in self._audience.pools:
            place = self._context.place(self._context.pool(name))
            entry = named.get((place.code, place.epoch))
            if entry is None or entry_key(entry) > entry_key(self._ends[name]):
                raise Gone(text, "")
            places[name] = entry
        return places

    async def _missed(self) -> AsyncGenerator[Message, None]:
        for pool in self._audience.pools:
            viewer = self._hub.viewer(pool)
            async for found in self._hub.archive.entries(pool, self._places[pool], None, AT_ONCE):
                read = [entry for entry in found if isinstance(entry, Entry)]
                entries = [entry for entry in read if entry.type != PREVIEW]  # who looks now sees the newest only
                for viewed in await self._audience.view(viewer, entries):
                    for message in await self._tell(viewed):
                        yield message
                self._places[pool] = found[-1].position

    async def _snapshot(self) -> Message:
        self._places = await self._ends_of_logs()
        return messages.snapshot(self._id(), await self._audience.snapshot())

    async def _ends_of_logs(self) -> dict[str, str]:
        pools = self._audience.pools
        ends = await asyncio.gather(*(self._context.within(self._context.store.end_of_log(pool)) for pool in pools))
        return dict(zip(pools, ends, strict=True))

    def _to_tell(self) -> list[Viewed]:
        now_s = monotonic()
        news = [told for viewed in self._listener.take() for told in self._pace.take(viewed, now_s)]
        return news + self._pace.due(now_s)

    async def _tell(self, viewed: Viewed) -> list[Message]:
        entry, wanted = viewed.entry, self._wanted
        is_wanted = wanted.shows(viewed.type) and self._audience.is_wanted(viewed)
        if entry.type == PREVIEW:
            return [await self._preview(viewed)] if is_wanted and wanted.previews != "none" else []
        if entry_key(entry.position) <= entry_key(self._places[viewed.pool]):
            return []  # told already, or in the snapshot
        self._places[viewed.pool] = entry.position
        at_ms = entry_ms(entry.position) if self._is_live else 0
        return [Message("event", viewed.data, self._id(), entry.type, at_ms=at_ms)] if is_wanted else []

    async def _preview(self, viewed: Viewed) -> Message:
        place = self._context.place(self._context.pool(viewed.pool))
        return await read_preview(viewed.entry, self._wanted.previews, self._context.files, viewed.tenant_id, place)

    def _id(self) -> str:
        places = ((self._context.place(self._context.pool(pool)), entry) for pool, entry in self._places.items())
        return ",".join(str(Position(place.code, place.epoch, entry)) for place, entry in places)

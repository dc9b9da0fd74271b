"""One job, followed: what was missed, or how it is, then every event as it comes, and its end.

Promises: whoever goes on from the last id has every event of the job once, but for previews, or is told of a gap and
given the job as it is; the stream ends behind the job's terminal state. Does not promise previews: the newest is shown.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from time import monotonic

from contracts.envelope import Origin
from contracts.errors import Corrupt, HeadraceError, StoreUnavailable, Unconfirmed
from contracts.positions import Position, entry_ms, parse_position
from contracts.store.jobs import MOST_EVENTS, History
from contracts.wire import Entry
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.live import messages
from services.ingest.live.feed import Feed, Listener
from services.ingest.live.messages import BEAT, Message
from services.ingest.live.pace import Pace
from services.ingest.live.previews import read_preview
from services.ingest.live.query import Wanted
from services.ingest.live.records import make
from services.ingest.live.resuming import missed, newest_preview_only, state_before
from services.ingest.live.subscription import PREVIEW

HEARTBEAT_S = 15.0


class JobStream:
    """What one listener of one job is told. `begin`, then iterate `messages`."""

    def __init__(self, context: Context, reader: JobReader, feed: Feed, listener: Listener, wanted: Wanted) -> None:
        self._context, self._reader, self._feed, self._listener = context, reader, feed, listener
        self._wanted = wanted
        self._pace: Pace[Entry] = Pace(wanted.min_interval_s)
        self._first: list[Message] = []
        self._missed: Sequence[Entry] = ()
        self._is_catching_up = True

    async def begin(self, shown: Shown) -> bool:
        """Read where it begins; False when all of an ended job was told before. Raises Problem, Unavailable."""
        await self._reader_has_begun()
        self._shown = shown
        wanted = self._wanted
        if wanted.after is None and not wanted.from_start:
            self._first = [await self._snapshot()]
            return True
        history = await self._reader.history(shown, MOST_EVENTS, with_body=False)
        entries = self._behind(history)
        if entries is None:
            oldest = history.entries[0].position if history.entries else history.state.position
            self._first = [messages.gap(wanted.after, self._place(oldest)), await self._snapshot()]
            return True
        self._state, self._missed = state_before(history, entries), entries
        return bool(entries) or not history.state.terminal

    async def messages(self) -> AsyncGenerator[Message]:
        """Tell what there is, with a beat where nothing is; ends after `end`."""
        for message in self._first:
            yield message
        for entry in newest_preview_only(self._missed):
            for message in await self._tell(entry):
                yield message
        self._first, self._missed, self._is_catching_up = [], (), False
        while (reason := self._why_over()) is None:
            has_news = await self._listener.wait(self._pace.wait_s(monotonic(), HEARTBEAT_S))
            entries = self._to_tell()
            for entry in entries:
                for message in await self._tell(entry):
                    yield message
            if self._listener.is_lost:
                async for message in self._after_a_hole():
                    yield message
            elif not (has_news or entries):
                yield BEAT
        yield messages.end(reason, self._place(self._state.position) if reason == "terminal" else "")

    def _why_over(self) -> str | None:
        if self._state.terminal:
            return "terminal"
        if self._listener.is_slow:
            return "slow_consumer"
        return "going_away" if self._listener.is_over else None

    def _to_tell(self) -> list[Entry]:
        now_s = monotonic()
        news = [told for entry in self._listener.take() for told in self._pace.take(entry, now_s)]
        return news + self._pace.due(now_s)

    async def _reader_has_begun(self) -> None:
        try:
            await self._context.within(self._feed.begun())
        except Unconfirmed:
            raise StoreUnavailable("the log is not read yet") from None

    async def _after_a_hole(self) -> AsyncGenerator[Message]:
        """Tell of the gap and how the job is now, once the store says it."""
        yield messages.gap(self._place(self._state.position), None)
        while not self._listener.is_over:
            self._listener.begin_again()
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._feed.begun()
                    yield await self._snapshot()
                return
            except (Problem, Corrupt):
                self._listener.is_over = True  # it is gone with what the store lost, or nobody can read it
            except (TimeoutError, HeadraceError):
                yield BEAT
                await asyncio.sleep(1)

    def _behind(self, history: History) -> Sequence[Entry] | None:
        if self._wanted.after is None:
            return history.entries if history.complete else None
        place = self._context.place(self._shown.meta)
        try:
            return missed(history, parse_position(self._wanted.after), place.code, place.epoch)
        except ValueError:  # one place for each pool: where a stream of the tenant stood
            return None

    async def _snapshot(self) -> Message:
        details = await self._reader.details(self._shown)
        self._state = details.state
        view = self._reader.show(details)
        return messages.snapshot(str(view["position"]), {"job": view})

    async def _tell(self, entry: Entry) -> list[Message]:
        if entry.sequence <= self._state.sequence and entry.type != PREVIEW:
            return []  # it is in the snapshot
        place = self._context.place(self._shown.meta)
        if entry.type == PREVIEW:
            if self._wanted.previews == "none" or not self._wanted.shows(PREVIEW):
                return []
            tenant_id = self._shown.state.tenant_id
            found = await read_preview(entry, self._wanted.previews, self._context.files, tenant_id, place)
            return [found]
        # What was missed may be folded from less than all of the log: that is nobody else's.
        how = make if self._is_catching_up else self._feed.records.make
        self._state, record = how(entry, self._state, Origin(place.code, place.epoch, place.public_url))
        if not self._wanted.shows(entry.type):
            return []
        if record is None:
            return []
        at_ms = 0 if self._is_catching_up else entry_ms(entry.position)
        return [Message("event", record, self._place(entry.position), entry.type, at_ms=at_ms)]

    def _place(self, position: str) -> str:
        place = self._context.place(self._shown.meta)
        return str(Position(place.code, place.epoch, position))

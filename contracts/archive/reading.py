"""Reading archive and live log as one: every entry once, in order, wherever it lies.

Promises: what `read` gives has no hole and nothing twice, also while segments are sealed and the log is trimmed beside
it; a position of which neither has what follows raises `Gone`. Positions ascend through all epochs of a pool.
Does not promise that the archive is untouched: `segments.first_bad` and `audit verify` do.
"""

import functools
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Sequence, Set
from typing import Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from contracts.archive import segments
from contracts.archive.lines import Lines, split
from contracts.archive.names import SegmentName
from contracts.archive.segments import Segment
from contracts.archive.shelf import SegmentShelf
from contracts.artifacts import Objects, StoreAway
from contracts.errors import HeadraceError, Unavailable
from contracts.ids import SKEW_MS, minted_ms
from contracts.positions import START, before, entry_key, entry_ms, next_key
from contracts.recent import Recent
from contracts.store import Store
from contracts.store.archive import Manifest
from contracts.store.log import Poison
from contracts.store.records import Record, RecordReader, may_lack
from contracts.threads import Threads
from contracts.wire import Entry

MOST_KEPT = 4  # unpacked segments, some 3 MB each
READ_AHEAD = 5_000  # of a segment
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound="_Placed")


class Gone(HeadraceError):
    """What follows `after` is neither in the archive nor in the log; `first` is where one can go on."""

    code = "cursor_expired"

    def __init__(self, after: str, first: str) -> None:
        super().__init__(f"the log no longer has what follows {after}; it goes on at {first}")
        self.after, self.first = after, first


class Archive:
    """All pools of one store, with their segments in one store of objects."""

    def __init__(self, store: Store, objects: Objects) -> None:
        self.shelf = SegmentShelf(objects)
        self._store = store
        self._log = RecordReader(store.channel())
        self._threads = Threads(2, "archive")
        self._names: dict[str, tuple[str, list[SegmentName]]] = {}
        self._unpacked: Recent[str, Lines] = Recent(MOST_KEPT)
        self._trimmed: dict[str, str] = {}  # what lies below is not in the log any more, and never comes back

    async def segments(self, pool: str) -> list[SegmentName]:
        """Return the sealed segments of a pool, in order."""
        manifest = await self._store.archive.manifest(pool)
        return [] if manifest is None else await self._sealed(pool, manifest.upto)

    async def open(self, pool: str, name: SegmentName) -> Segment:
        """Return one segment. Raises Corrupt, Unavailable."""
        return await self.run(segments.whole, await self.lines(pool, name))

    async def read(
        self, pool: str, after: str | None = START, until: str | None = None, count: int = 1000
    ) -> AsyncIterator[Sequence[Record]]:
        """Give what follows `after`, up to and with `until`, at most `count` at a time, as it is: to verify it.

        Args:
            after: None begins with the oldest entry there is.
            until: None ends where the log ends when it is reached.

        Raises Gone, Corrupt, Unavailable.
        """
        async for batch in self._batches(pool, after, until, count, _EXACT):
            yield batch

    async def entries(
        self, pool: str, after: str | None = START, until: str | None = None, count: int = 1000
    ) -> AsyncIterator[Sequence[Entry | Poison]]:
        """Give the same as `read`, read as entries."""
        async for batch in self._batches(pool, after, until, count, _ENTRIES):
            yield batch

    async def next(self, pool: str, after: str, count: int) -> Sequence[Entry | Poison]:
        """Return up to `count` entries that follow `after`, fewer where a segment ends. Raises as `read`."""
        return await self._next(pool, after, count, count, _ENTRIES)

    async def _batches(
        self, pool: str, after: str | None, until: str | None, count: int, form: "_Form[T]"
    ) -> AsyncIterator[Sequence[T]]:
        at = await self.oldest(pool) if after is None else after
        last = None if until is None else entry_key(until)
        while last is None or entry_key(at) < last:
            found = await self._next(pool, at, count, READ_AHEAD, form)
            if not found:
                return
            at = found[-1].position
            if last is not None and entry_key(at) > last:
                found = found[: bisect_right(found, last, key=lambda each: entry_key(each.position))]
            for start in range(0, len(found), count):
                yield found[start : start + count]

    async def _next(self, pool: str, after: str, of_log: int, of_segment: int, form: "_Form[T]") -> Sequence[T]:
        """Return what follows `after`: the next entries of the log, or of a segment."""
        found = await self._place(pool, after) if may_lack(after, self._trimmed.get(pool, START)) else None
        if found is None:
            live, self._trimmed[pool] = await self._log.after(pool, after, of_log)
            if not may_lack(after, self._trimmed[pool]):
                return form.of_log(live)
            if (found := await self._place(pool, after)) is None:
                raise Gone(after, live[0].position if live else self._trimmed[pool])
        lines, place = found
        return await self.run(form.of_lines, lines, place, place + of_segment)

    async def _place(self, pool: str, after: str) -> tuple[Lines, int] | None:
        """Return the segment that holds what follows `after`, and where; None when the archive has it not."""
        manifest = await self._store.archive.manifest(pool) or Manifest()
        if entry_key(manifest.upto) <= entry_key(after) or may_lack(after, manifest.below):
            return None
        names = await self._sealed(pool, manifest.upto)
        number = bisect_left(names, next_key(after), key=lambda name: entry_key(name.last))
        if number == len(names):
            return None
        lines = await self.lines(pool, names[number])
        return lines, lines.behind(after)

    async def oldest(self, pool: str) -> str:
        """Return a position right before the oldest entry there is."""
        manifest = await self._store.archive.manifest(pool)
        if manifest is not None and await self._sealed(pool, manifest.upto):
            return before(manifest.below)
        _, trimmed = await self._log.after(pool, START, 1)
        return before(trimmed)

    async def below(self, pool: str, position: str, after: int, most: int) -> list[Entry]:
        """Return a job's events from the one at `position` back, by their back pointers, newest first.

        Ends with the event after number `after`, after `most` events, or where the archive has no more.
        """
        manifest = await self._store.archive.manifest(pool)
        names = [] if manifest is None else await self._sealed(pool, manifest.upto)
        found: list[Entry] = []
        while position and len(found) < most:
            place = bisect_left(names, entry_key(position), key=lambda name: entry_key(name.last))
            if place == len(names):
                break
            walked = await self.run(_walk, await self.lines(pool, names[place]), position, after, most - len(found))
            found += walked
            if not walked or walked[-1].sequence <= after + 1:
                break
            position = walked[-1].previous
        return found

    async def body(self, pool: str, job_id: str) -> bytes | None:
        """Return the newest body that was kept of a job; None when there is none, or it was erased."""
        since_ms = minted_ms(job_id) - SKEW_MS
        for name in reversed(await self.segments(pool)):
            if entry_ms(name.last) < since_ms:
                break
            kept = await self.run(self.shelf.bodies, pool, name)
            if job_id in kept:
                return kept[job_id]
        return None

    async def erase_bodies(
        self, pool: str, job_ids: Set[str]
    ) -> AsyncIterator[tuple[dict[str, bytes], Set[str]]]:  # fmt: skip
        """Take jobs' bodies out of what lies beside segments; gives, place by place, those that go next, and the jobs
        whose bodies are written back.

        For the leader of the archive alone, who writes there. Digests and chain stay valid. A body that is not
        archived yet is in the store: erase it there first. Raises Corrupt, Unavailable.
        """
        since_ms = min(map(minted_ms, job_ids)) - SKEW_MS
        for name in reversed(await self.run(self.shelf.bodied, pool)):
            if entry_ms(name.last) < since_ms:
                return
            kept = await self.run(self.shelf.bodies, pool, name)
            found = {job_id: kept.pop(job_id) for job_id in kept.keys() & job_ids}
            yield found, kept.keys() if found else frozenset()
            if found:
                await self.run(self.shelf.put_bodies, pool, name, kept)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run what asks the store of objects, or takes long, in a thread. Raises Unavailable for StoreAway."""
        try:
            return await self._threads.run(functools.partial(call, *args, **kwargs))
        except StoreAway as error:
            raise Unavailable("the archive", error.strerror or "") from error

    async def _sealed(self, pool: str, upto: str) -> list[SegmentName]:
        known, names = self._names.get(pool, ("", []))
        if known != upto:
            listed = await self.run(self.shelf.names, pool)
            # what lies beyond was kept by an archivist that died before it said so
            names = [name for name in listed if entry_key(name.last) <= entry_key(upto)]
            self._names[pool] = (upto, names)
        return names

    async def lines(self, pool: str, name: SegmentName) -> Lines:
        """Return the lines of one segment. Raises Corrupt, Unavailable."""
        key = name.key(pool)
        lines = self._unpacked.get(key)
        if lines is None:
            lines = await self.run(self._unpack, pool, name)
            self._unpacked.put(key, lines)
        return lines

    def _unpack(self, pool: str, name: SegmentName) -> Lines:
        return split(self.shelf.lines(pool, name), name.key(pool))


class _Placed(Protocol):
    @property
    def position(self) -> str: ...


class _Form(NamedTuple, Generic[T]):
    """What is made of the records of a log and of the lines of a segment."""

    of_log: Callable[[list[Record]], list[T]]
    of_lines: Callable[[Lines, int, int], list[T]]


_EXACT = _Form[Record](list, Lines.records)
_ENTRIES = _Form[Entry | Poison](lambda records: [record.entry() for record in records], Lines.entries)


def _walk(lines: Lines, position: str, after: int, most: int) -> list[Entry]:
    found: list[Entry] = []
    while position and len(found) < most:
        record = lines.find(position)
        entry = record.entry() if record is not None else None
        if not isinstance(entry, Entry) or entry.sequence <= after:
            break
        found.append(entry)
        position = entry.previous
    return found

"""Reading archive and live log as one: every entry once, in order, wherever it lies.

Promises: what `read` gives has no hole and nothing twice, also while segments are sealed and the log is trimmed beside
it; a position of which neither has what follows raises `Gone`. Positions ascend through all epochs of a pool.
Does not promise that the archive is untouched: `segments.first_bad` and `audit verify` do.
"""

import functools
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import ParamSpec, TypeVar

from contracts.archive import segments
from contracts.archive.names import SegmentName
from contracts.archive.segments import Segment
from contracts.archive.shelf import SegmentShelf
from contracts.artifacts import Objects, StoreAway
from contracts.errors import HeadraceError, Unavailable
from contracts.ids import minted_ms
from contracts.positions import START, before, entry_key, entry_ms, next_key
from contracts.store import Store
from contracts.store.archive import Manifest
from contracts.store.records import Record, RecordReader, may_lack
from contracts.threads import Threads
from contracts.wire import Entry

SKEW_MS = 3_600_000  # of the clocks of those that mint ids
MOST_KEPT = 4  # unpacked segments, some 3 MB each
P = ParamSpec("P")
T = TypeVar("T")


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
        self._unpacked: OrderedDict[str, bytes] = OrderedDict()

    async def segments(self, pool: str) -> list[SegmentName]:
        """Return the sealed segments of a pool, in order."""
        manifest = await self._store.archive.manifest(pool)
        return [] if manifest is None else await self._sealed(pool, manifest.upto)

    async def open(self, pool: str, name: SegmentName) -> Segment:
        """Return one segment. Raises Corrupt, Unavailable."""
        return await self.run(segments.parse, await self._lines(pool, name), name.key(pool))

    async def read(
        self, pool: str, after: str | None = START, until: str | None = None, count: int = 1000
    ) -> AsyncIterator[list[Record]]:
        """Give what follows `after`, up to and with `until`, at most `count` at a time.

        Args:
            after: None begins with the oldest entry there is.
            until: None ends where the log ends when it is reached.

        Raises Gone, Corrupt, Unavailable.
        """
        at = await self.oldest(pool) if after is None else after
        last = None if until is None else entry_key(until)
        while last is None or entry_key(at) < last:
            found = await self.next(pool, at, count)
            if not found:
                return
            for start in range(0, len(found), count):
                batch = [
                    record
                    for record in found[start : start + count]
                    if last is None or entry_key(record.position) <= last
                ]
                if batch:
                    yield batch
            at = found[-1].position

    async def next(self, pool: str, after: str, count: int) -> Sequence[Record]:
        """Return what follows `after`: the next entries of the log, or the rest of a segment. Raises as `read`."""
        live, trimmed = await self._log.after(pool, after, count)
        if not may_lack(after, trimmed):
            return live
        manifest = await self._store.archive.manifest(pool) or Manifest()
        first = live[0].position if live else trimmed
        if entry_key(manifest.upto) <= entry_key(after) or may_lack(after, manifest.below):
            raise Gone(after, first)
        names = await self._sealed(pool, manifest.upto)
        place = bisect_left(names, next_key(after), key=lambda name: entry_key(name.last))
        if place == len(names):
            raise Gone(after, first)
        records = (await self.open(pool, names[place])).records
        return records[bisect_left(records, next_key(after), key=lambda record: entry_key(record.position)) :]

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
            walked = await self.run(_walk, await self._lines(pool, names[place]), position, after, most - len(found))
            found += walked
            if not walked or walked[-1].sequence <= after + 1:
                break
            position = walked[-1].previous
        return found

    async def body(self, pool: str, job_id: str) -> bytes | None:
        """Return the newest body that was kept of a job; None when there is none, or it was erased."""
        async for _, kept in self._bodies_with(pool, job_id):
            return kept[job_id]
        return None

    async def erase_body(self, pool: str, job_id: str) -> int:
        """Take a job's bodies out of what lies beside the segments; returns how many there were.

        Digests and chain stay valid. A body that is not archived yet is in the store: erase it there first.
        """
        count = 0
        async for name, kept in self._bodies_with(pool, job_id):
            del kept[job_id]
            await self.run(self.shelf.put_bodies, pool, name, kept)
            count += 1
        return count

    async def _bodies_with(self, pool: str, job_id: str) -> AsyncIterator[tuple[SegmentName, dict[str, bytes]]]:
        """Give the bodies beside each segment that has one of the job, newest first."""
        since_ms = minted_ms(job_id) - SKEW_MS
        for name in reversed(await self.segments(pool)):
            if entry_ms(name.last) < since_ms:
                return
            kept = await self.run(self.shelf.bodies, pool, name)
            if job_id in kept:
                yield name, kept

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
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

    async def _lines(self, pool: str, name: SegmentName) -> bytes:
        key = name.key(pool)
        lines = self._unpacked.get(key)
        if lines is None:
            lines = self._unpacked[key] = await self.run(self.shelf.lines, pool, name)
            while len(self._unpacked) > MOST_KEPT:
                self._unpacked.popitem(last=False)
        self._unpacked.move_to_end(key)
        return lines


def _walk(lines: bytes, position: str, after: int, most: int) -> list[Entry]:
    found: list[Entry] = []
    while position and len(found) < most:
        record = segments.find(lines, position)
        entry = record.entry() if record is not None else None
        if not isinstance(entry, Entry) or entry.sequence <= after:
            break
        found.append(entry)
        position = entry.previous
    return found

"""Reading archive and live log from newer to older, and finding what lies at one place of them.

Promises: no hole between what one call gives and the next, also while segments are sealed and the log is trimmed
beside it. Raises Corrupt, Unavailable.
"""

from bisect import bisect_left
from collections.abc import Sequence

from contracts.archive.names import SegmentName
from contracts.archive.reading import Archive
from contracts.positions import before, entry_key
from contracts.store import Store
from contracts.store.log import Poison
from contracts.store.records import preceding
from contracts.wire import Entry


async def older(
    store: Store, archive: Archive, pool: str, below: str | None, count: int
) -> Sequence[Entry | Poison]:  # fmt: skip
    """Return what comes before `below`, newest first; None begins at the end of the log. [] where nothing does."""
    # The log is always the newest part of everything: what it has below a place has no hole up to that place.
    found = await preceding(store.client, pool, None if below is None else before(below), count)
    if found:
        return [record.entry() for record in found]
    names = await archive.segments(pool)
    number = (
        len(names) if below is None else bisect_left(names, entry_key(below), key=lambda name: entry_key(name.first))
    )
    if not number:
        return []
    lines = await archive.lines(pool, names[number - 1])
    end = len(lines.inner) if below is None else lines.at_or_behind(below)
    return (await archive.run(lines.entries, max(0, end - count), end))[::-1]


async def story(store: Store, archive: Archive, pool: str, last: Entry, most: int) -> list[Entry]:
    """Return the events of a job up to `last`, oldest first, by their back pointers: also of one that is forgotten."""
    found = await archive.below(pool, last.position, 0, most)
    if not found:
        found = [last]
    while len(found) < most and found[-1].previous:
        sealed = await archive.below(pool, found[-1].previous, 0, most - len(found))
        live = sealed or await _live(store, pool, found[-1].previous)
        if not live:
            break
        found += live
    return found[::-1]


def segment_of(names: Sequence[SegmentName], position: str) -> SegmentName | None:
    """Return the segment that a position lies in, of segments in order."""
    key = entry_key(position)
    number = bisect_left(names, key, key=lambda name: entry_key(name.last))
    return names[number] if number < len(names) and entry_key(names[number].first) <= key else None


async def _live(store: Store, pool: str, position: str) -> list[Entry]:
    found = await preceding(store.client, pool, position, 1)
    entry = found[0].entry() if found and found[0].position == position else None
    return [entry] if isinstance(entry, Entry) else []

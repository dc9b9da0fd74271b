"""Reading archive and live log from newer to older, and finding what lies at one place of them.

Promises: no hole between what one call gives and the next, also while segments are sealed and the log is trimmed
beside it. Raises Corrupt, Unavailable.
"""

from collections.abc import Sequence

from contracts.archive.chain import link
from contracts.archive.names import SegmentName
from contracts.archive.reading import Archive
from contracts.archive.segments import Segment
from contracts.positions import before, entry_key
from contracts.store import Store
from contracts.store.records import Record, preceding
from contracts.wire import Entry


async def older(store: Store, archive: Archive, pool: str, below: str | None, count: int) -> Sequence[Record]:
    """Return what comes before `below`, newest first; None begins at the end of the log. [] where nothing does."""
    # The log is always the newest part of everything: what it has below a place has no hole up to that place.
    found = await preceding(store.client, pool, None if below is None else before(below), count)
    if found:
        return found
    names = await archive.segments(pool)
    earlier = [name for name in names if below is None or entry_key(name.first) < entry_key(below)]
    if not earlier:
        return []
    records = (await archive.open(pool, earlier[-1])).records
    return [record for record in reversed(records) if below is None or entry_key(record.position) < entry_key(below)]


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


async def digest_of(archive: Archive, pool: str, position: str) -> str | None:
    """Return the chain's digest after the entry at `position`; None while it is not sealed."""
    name = segment_of(await archive.segments(pool), position)
    if name is None:
        return None
    return await archive.run(_digest_at, await archive.open(pool, name), position)


def segment_of(names: Sequence[SegmentName], position: str) -> SegmentName | None:
    """Return the segment that a position lies in."""
    key = entry_key(position)
    return next((name for name in names if entry_key(name.first) <= key <= entry_key(name.last)), None)


async def _live(store: Store, pool: str, position: str) -> list[Entry]:
    found = await preceding(store.client, pool, position, 1)
    entry = found[0].entry() if found and found[0].position == position else None
    return [entry] if isinstance(entry, Entry) else []


def _digest_at(segment: Segment, position: str) -> str | None:
    digest = segment.before
    for record in segment.records:
        digest = link(digest, record)
        if record.position == position:
            return digest.hex()
    return None

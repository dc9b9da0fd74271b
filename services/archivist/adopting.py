"""What becomes of segments that were kept and never said: the process died in between, or the log lost them. Pure."""

from collections.abc import Sequence

from contracts.archive import Segment, SegmentName
from contracts.positions import entry_key
from contracts.store.archive import Manifest
from contracts.store.records import Record


def unsaid(names: Sequence[SegmentName], upto: str) -> list[SegmentName]:
    """Return the segments beyond what is said to be archived, in order."""
    return [name for name in names if entry_key(name.last) > entry_key(upto)]


def is_next(segment: Segment, log: Sequence[Record], manifest: Manifest) -> bool:
    """Whether a segment is what would be sealed next.

    Args:
        log: what the log holds after the last sealed entry, at least as much as the segment if there is as much.
    """
    follows = segment.epoch == manifest.epoch and segment.before.hex() == manifest.digest
    return follows and list(segment.records) == list(log[: len(segment.records)])

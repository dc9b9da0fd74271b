"""Walks the sealed segments of a log: does each follow the one before it, and is each entry what was sealed? Pure.

Promises: the first position whose bytes, order or place is not what the chain says is found. Does not promise that a
chain which somebody made anew from its beginning is noticed here: signed checkpoints are for that.
"""

from collections.abc import Iterator, Sequence

from contracts.archive.chain import START_DIGEST, link
from contracts.archive.checkpoints import is_genuine
from contracts.archive.lines import MARK_DIGITS
from contracts.archive.names import SegmentName
from contracts.archive.segments import Segment
from contracts.audit.findings import Findings
from contracts.events import LogCheckpointed
from contracts.positions import START, entry_key
from contracts.store.records import Record


class ChainAudit:
    """Where the walk through the archive of one pool is."""

    def __init__(self, pool: str, findings: Findings) -> None:
        self._pool, self._findings = pool, findings
        self.digest, self.upto, self.count = START_DIGEST, START, 0
        self._is_within = False  # it began inside: what lies before is not known
        self._ends: dict[str, tuple[str, int]] = {}  # last position of a segment -> digest and count after it

    def begin_at(self, position: str) -> None:
        """Begin behind a position: what the first segment says of what was before is believed."""
        self.upto, self._is_within = position, True

    def next_of(self, names: Sequence[SegmentName]) -> Iterator[SegmentName]:
        """Yield the segments that begin after what was walked; what overlaps lies there of an archivist that died."""
        for name in names:
            if entry_key(name.first) > entry_key(self.upto):
                yield name

    def take(self, name: SegmentName, segment: Segment, lines: bytes) -> None:
        """Walk one segment. The walk goes on from what the segment itself says, so that one fault is told once."""
        where = name.first
        is_first = self._is_within and not self.count
        if segment.before != self.digest and not is_first:
            self._findings.add(where, "chain_broken", f"the segment from {where} does not follow {self.upto}")
        if (segment.pool, segment.name) != (self._pool, name):
            self._findings.add(where, "wrong_segment", f"it says it is {segment.name.key(segment.pool)}")
        bad = _first_bad(segment, lines)
        if bad is not None:
            self._findings.add(bad, "altered_entry", "its digest is not the one that was sealed")
        self.digest, self.upto, self.count = segment.after, name.last, self.count + len(segment.records)
        self._ends[self.upto] = (self.digest.hex(), self.count)

    def skip(self, name: SegmentName, why: str) -> None:
        """Note a segment that cannot be read; the next one will not follow."""
        self._findings.add(name.first, "unreadable_segment", why)
        self.upto = name.last

    def end(self, upto: str, digest: str, count: int) -> None:
        """Compare with how far the store says the archive reaches."""
        if self._is_within:
            count = self.count
            upto, digest = (upto, digest) if count else (self.upto, self.digest.hex())
        if (self.upto, self.digest.hex(), self.count) != (upto, digest, count):
            at = max(self.upto, upto, key=entry_key)
            said, found = f"{count} entries up to {upto}", f"{self.count} up to {self.upto}"
            self._findings.add(
                at, "chain_end", f"the manifest says {said}, the archive holds {found}, or another chain"
            )

    def checkpoint(self, position: str, said: LogCheckpointed, public: bytes) -> None:
        """Check one signed checkpoint, found in the log at `position`; what was sealed meanwhile is not walked."""
        if not is_genuine(self._pool, said, public):
            self._findings.add(position, "forged_checkpoint", f"key {said.key_id} did not sign it")
        elif entry_key(said.position) <= entry_key(self.upto) and not self._is_end(said):
            self._findings.add(said.position, "checkpoint_differs", f"the archive is not the one signed at {position}")

    def _is_end(self, said: LogCheckpointed) -> bool:
        digest, count = self._ends.get(said.position, ("", 0))
        if self._is_within:  # counts, and what was signed of what lies before, cannot be judged
            return digest in ("", said.hash)
        return (digest, count) == (said.hash, said.count)


def _first_bad(segment: Segment, lines: bytes) -> str | None:
    digest = segment.before
    for record, line in zip(segment.records, lines.split(b"\n")[1:], strict=False):
        digest = link(digest, record)
        if not line.endswith(b'"c":"%s"}' % digest.hex()[:MARK_DIGITS].encode()):
            return record.position
    return None if digest == segment.after else segment.records[-1].position


def first_difference(sealed: Sequence[Record], live: Sequence[Record]) -> str | None:
    """Return the first position at which the log is not what was sealed of it; None when it is."""
    for kept, there in zip(sealed, live, strict=False):
        if kept != there:
            return min(kept.position, there.position, key=entry_key)
    longer, shorter = (sealed, live) if len(sealed) > len(live) else (live, sealed)
    return longer[len(shorter)].position if len(longer) > len(shorter) else None

"""What a segment is: lines of JSON, compressed with zstd, readable with `zstdcat | jq`. Pure.

The first line says where it belongs and the digest before it, the last one how many entries it holds and the digest
after them. Each line between is one entry: `p` its position, `f` names and values of its fields in their order (`x`:
the same in base64, where they are no texts), `c` the first 8 hex digits of its digest, so that a change can be placed.
Promises: unpacking gives back the exact bytes of every entry.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import zstandard

from contracts.archive.chain import link
from contracts.archive.lines import FORMAT, MARK_DIGITS, Lines, line_of, split
from contracts.archive.names import SegmentName
from contracts.errors import Corrupt
from contracts.store.records import Record

LEVEL = 3
MOST_BYTES = 1 << 30  # unpacked; more is no segment of ours


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of entries of one log, in order and without a hole. `before` and `after` are digests of the chain."""

    pool: str
    epoch: int
    before: bytes
    records: Sequence[Record]
    after: bytes

    @property
    def name(self) -> SegmentName:
        """What it is called."""
        return SegmentName(self.epoch, self.records[0].position, self.records[-1].position)


def seal(pool: str, epoch: int, before: bytes, records: Sequence[Record]) -> tuple[Segment, bytes]:
    """Make a segment of at least one record; returns it, and its bytes."""
    digest, lines = before, [b""]
    for record in records:
        digest = link(digest, record)
        lines.append(line_of(record, digest))
    segment = Segment(pool, epoch, before, records, digest)
    name = segment.name
    lines[0] = orjson.dumps(
        {
            "segment": FORMAT,
            "pool": pool,
            "epoch": epoch,
            "first": name.first,
            "last": name.last,
            "before": before.hex(),
        }
    )
    lines.append(orjson.dumps({"count": len(records), "after": digest.hex()}) + b"\n")
    return segment, zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(b"\n".join(lines))


def unpack(data: bytes, where: str) -> Segment:
    """Read a segment as it claims to be; `first_bad` says whether its chain holds. Raises Corrupt."""
    return parse(lines_of(data, where), where)


def lines_of(data: bytes, where: str) -> bytes:
    """Return the lines of a packed segment. Raises Corrupt."""
    try:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_BYTES)
    except zstandard.ZstdError as error:
        raise Corrupt(where, f"the segment cannot be unpacked: {error}") from error


def parse(lines: bytes, where: str) -> Segment:
    """Read the lines of a segment. Raises Corrupt."""
    return whole(split(lines, where))


def whole(lines: Lines) -> Segment:
    """Read all lines. Raises Corrupt."""
    return Segment(lines.pool, lines.epoch, lines.before, lines.records(), lines.after)


def first_bad(lines: bytes, before: bytes) -> str | None:
    """Return the first position whose digest is not what its line says; None when the chain holds to the end.

    `before`: the digest that the segment before this one ends with. Raises Corrupt when it cannot be read at all.
    """
    segment, digest = parse(lines, "segment"), before
    if segment.before != before:
        return segment.records[0].position
    for record, line in zip(segment.records, lines.split(b"\n")[1:], strict=False):
        digest = link(digest, record)
        if not line.endswith(b'"c":"%s"}' % digest.hex()[:MARK_DIGITS].encode()):
            return record.position
    return None if digest == segment.after else segment.records[-1].position

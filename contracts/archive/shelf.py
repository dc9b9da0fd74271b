"""Segments in a store of objects, and the bodies beside them. Blocking: call it in a thread.

Promises: a segment is there whole or not at all and is never changed; the bodies beside it may be, since erasure must
take personal content out of an archive whose chain goes on. Raises StoreAway when the store does not answer.
"""

from collections.abc import Mapping

import orjson
import zstandard

from contracts.archive import names
from contracts.archive.names import SegmentName
from contracts.archive.segments import LEVEL, Segment, lines_of, unpack
from contracts.artifacts import Objects
from contracts.errors import Corrupt

MIME = "application/zstd"


class SegmentShelf:
    """All segments of all pools in one store of objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def names(self, pool: str) -> list[SegmentName]:
        """Return the segments of a pool in the order of the log."""
        found = (names.parse_key(stored.key) for stored in self._objects.list(f"{pool}/"))
        return names.in_order([parsed[1] for parsed in found if parsed is not None and parsed[0] == pool])

    def put(self, segment: Segment, packed: bytes) -> None:
        """Keep a segment; it is on the disk when this returns."""
        self._objects.put_file(segment.name.key(segment.pool), packed, MIME)

    def lines(self, pool: str, name: SegmentName) -> bytes:
        """Return the lines of a segment. Raises Corrupt when it is gone or cannot be unpacked."""
        key = name.key(pool)
        data = self._read(key)
        if data is None:
            raise Corrupt(key, "the segment is gone")
        return lines_of(data, key)

    def segment(self, pool: str, name: SegmentName) -> Segment | None:
        """Return a segment; None when there is none. Raises Corrupt."""
        data = self._read(name.key(pool))
        return None if data is None else unpack(data, name.key(pool))

    def put_bodies(self, pool: str, name: SegmentName, bodies: Mapping[str, bytes]) -> None:
        """Keep the bodies of jobs that end in a segment, in place of those that were kept there."""
        key = name.bodies_key(pool)
        if not bodies:
            self._objects.delete(key)
            return
        lines = b"".join(
            orjson.dumps({"jobId": job_id, "body": body.decode("utf-8", "replace")}) + b"\n"
            for job_id, body in bodies.items()
        )
        self._objects.put_file(key, zstandard.ZstdCompressor(level=LEVEL).compress(lines), MIME)

    def bodies(self, pool: str, name: SegmentName) -> dict[str, bytes]:
        """Return the bodies kept beside a segment, by job. Raises Corrupt."""
        key = name.bodies_key(pool)
        data = self._read(key)
        lines = lines_of(data, key).splitlines() if data is not None else []
        try:
            found = (orjson.loads(line) for line in lines)
            return {each["jobId"]: each["body"].encode() for each in found}
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(key, f"the bodies cannot be read: {error!r}") from error

    def bodied(self, pool: str) -> list[SegmentName]:
        """Return what bodies lie beside, in order: also beside segments that do not count, or not any more."""
        found = (names.parse_bodies_key(stored.key) for stored in self._objects.list(f"{pool}/"))
        return names.in_order([parsed[1] for parsed in found if parsed is not None and parsed[0] == pool])

    def set_aside(self, pool: str, name: SegmentName) -> None:
        """Take a segment out of the archive without losing it: the log does not hold what it says."""
        data = self._read(name.key(pool))
        if data is not None:
            self._objects.put_file(name.aside_key(pool), data, MIME)
            self._objects.delete(name.key(pool))

    def _read(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        if found is None:
            return None
        with found:
            return b"".join(iter(found.read, b""))

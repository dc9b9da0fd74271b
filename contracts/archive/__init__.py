"""The archive: the event log once more, sealed into segments that nothing changes any more.

`chain` and `segments` say what a segment is, `names` how it is called, `shelf` keeps segments in a store of objects,
`bodies` what lies beside them and may be erased; `reading` reads archive and live log as one, `tail` follows them,
`opening` puts it together for a process.
"""

from contracts.archive.chain import START_DIGEST, digest_after, link
from contracts.archive.names import SegmentName
from contracts.archive.opening import open_archive
from contracts.archive.reading import Archive, Gone
from contracts.archive.segments import Segment, first_bad, seal, unpack
from contracts.archive.shelf import SegmentShelf
from contracts.archive.tail import ArchiveTail
from contracts.store.records import Record

__all__ = [
    "START_DIGEST", "Archive", "ArchiveTail", "Gone", "Record", "Segment", "SegmentName", "SegmentShelf",
    "digest_after", "first_bad", "link", "open_archive", "seal", "unpack",
]  # fmt: skip

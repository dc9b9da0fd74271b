"""The hash chain over a log: each entry's digest covers its exact bytes and all that came before it. Pure.

digest_i = SHA-256(digest_(i-1) | length and bytes of the position | length and bytes of each field name and value).
Lengths are 4 bytes, big-endian: two different entries never give the same input.
"""

import hashlib
from collections.abc import Iterable

from contracts.store.records import Record

START_DIGEST = bytes(32)
_LENGTHS = [length.to_bytes(4, "big") for length in range(4096)]


def link(before: bytes, record: Record) -> bytes:
    """Return the digest after `record`, given the one before it.

    >>> link(START_DIGEST, Record("1-0", (b"t", b"job.created"))).hex()[:16]
    '9b103a883c5c2ad2'
    """
    parts = [before]
    for text in (record.position.encode(), *record.fields):
        size = len(text)
        parts += (_LENGTHS[size] if size < 4096 else size.to_bytes(4, "big"), text)
    return hashlib.sha256(b"".join(parts)).digest()


def digest_after(before: bytes, records: Iterable[Record]) -> bytes:
    """Return the digest after all `records`."""
    for record in records:
        before = link(before, record)
    return before

"""Conditional and partial reads: `If-None-Match`, `Range`, `If-Range` (RFC 9110).

Promises: total over all header texts; what is malformed is ignored as the RFC asks, only a well-formed
range outside the content is an error. One range per request: several would let one request ask for the same
bytes many times over, so such a header gets the whole content.
"""

import re
from dataclasses import dataclass

_ETAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class Unsatisfiable(ValueError):
    """The range begins behind the end of the content."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to `end`, the end not included."""

    start: int
    end: int

    def content_range(self, size: int) -> str:
        """Write the `Content-Range` header.

        >>> ByteRange(0, 5).content_range(10)
        'bytes 0-4/10'
        """
        return f"bytes {self.start}-{self.end - 1}/{size}"


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the part asked for, None for the whole. Raises Unsatisfiable.

    >>> parse_range("bytes=-3", 10)
    ByteRange(start=7, end=10)
    """
    match = _RANGE.fullmatch(header or "")
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2] or size) + 1)
        if match[2] and int(match[2]) < start:
            return None
    if start >= end:
        raise Unsatisfiable
    return ByteRange(start, end)


def etag(version: object) -> str:
    """Write a strong entity tag.

    >>> etag(17)
    '"17"'
    """
    return f'"{version}"'


def is_unchanged(if_none_match: str | None, current: str) -> bool:
    """Whether the caller already holds `current`: any of its tags, compared weakly, or `*`."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or current in _ETAG.findall(if_none_match)


def is_expected(if_match: str | None, current: str) -> bool:
    """Whether a change may be made: no `If-Match`, `*`, or exactly our strong tag among its tags.

    >>> is_expected('"16", "17"', '"17"'), is_expected('W/"17"', '"17"'), is_expected("17", '"17"')
    (True, False, False)
    """
    if if_match is None or if_match.strip() == "*":
        return True
    return current in [tag.strip() for tag in if_match.split(",")]


def range_still_applies(if_range: str | None, current: str) -> bool:
    """Whether a range may be served: no `If-Range`, or one with exactly our strong tag."""
    return if_range is None or if_range.strip() == current

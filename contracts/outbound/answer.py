"""Reads one HTTP/1.1 answer as it arrives. Pure.

Promises: total over any bytes: each feed returns what of the body they bring, or raises `Malformed`; keeps no more than
`HEAD_BYTES_MAX` of a head, a size line or trailers; interim answers (1xx) are passed over within the same bound. What
says both how long it is and that it is chunked is chunked (RFC 9112, 6.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.outbound.terms import HungUp, Malformed

HEAD_BYTES_MAX = 32 << 10
_LONGEST_SIZE_LINE = 1_024
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?")
_BEGINNING = b"HTTP/1."
_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([^\r\n\0]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_UNTIL_CLOSED = -1


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers; names in lower case, of a name that is there twice the first."""

    status: int
    headers: Mapping[str, str] = field(repr=False)


class AnswerReader:
    """One answer. `head` is there once it is whole, `complete` says that nothing more belongs to it."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self._waiting = b""  # what is not understood yet
        self._left = 0  # of the body, or of the chunk
        self._is_chunked = False
        self._in_trailers = False
        self._head_bytes = 0

    @property
    def has_excess(self) -> bool:
        """Whether more arrived than belongs to the answer."""
        return self.complete and bool(self._waiting)

    def feed(self, data: bytes) -> bytes:
        """Take what arrived; returns what of it is body. Raises Malformed."""
        if self.complete:
            self._waiting = data
            return b""
        if self.head is None:
            self._waiting += data
            if not self._read_head():
                return b""
            if self.complete:
                return b""
            data, self._waiting = self._waiting, b""
        if self._is_chunked:
            return self._unchunk(data)
        if self._left == _UNTIL_CLOSED:
            return data
        body, self._waiting = data[: self._left], data[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body

    def end(self) -> None:
        """The other side has closed. Raises HungUp, unless that ends the answer rightly."""
        if self.head is not None and self._left == _UNTIL_CLOSED and not self._is_chunked:
            self.complete = True
        if not self.complete:
            raise HungUp

    def _read_head(self) -> bool:
        """Read the head if it is whole, behind any interim ones."""
        while self.head is None:
            if self._waiting[: len(_BEGINNING)] != _BEGINNING[: len(self._waiting)]:
                raise Malformed
            end = self._waiting.find(b"\r\n\r\n")
            if self._head_bytes + (len(self._waiting) if end < 0 else end) > HEAD_BYTES_MAX:
                raise Malformed
            if end < 0:
                return False
            lines, self._waiting = self._waiting[:end].split(b"\r\n"), self._waiting[end + 4 :]
            self._head_bytes += end + 4
            head = _head(lines)
            if not 100 <= head.status <= 199 or head.status == 101:
                self.head = head
                self._expect(head)
        return True

    def _expect(self, head: Head) -> None:
        length = head.headers.get("content-length")
        coding = head.headers.get("transfer-encoding", "").lower()
        if head.status in (101, 204, 304):
            self.complete = True
        elif coding:
            if coding.rpartition(",")[2].strip() != "chunked":
                raise Malformed
            self._is_chunked = True
        elif length is None:
            self._left = _UNTIL_CLOSED
        elif length.isascii() and length.isdigit() and len(length) < 19:
            self._left = int(length)
            self.complete = self._left == 0
        else:
            raise Malformed

    def _unchunk(self, data: bytes) -> bytes:
        waiting, at, body = self._waiting + data if self._waiting else data, 0, []
        while at < len(waiting) and not self.complete:
            if self._left > 2:  # the chunk's bytes, before the end of its line
                piece = waiting[at : at + self._left - 2]
                body.append(piece)
                at += len(piece)
                self._left -= len(piece)
            elif self._left:
                if waiting[at] != b"\r\n"[2 - self._left]:
                    raise Malformed
                at, self._left = at + 1, self._left - 1
            else:
                end = waiting.find(b"\r\n", at)
                if end < 0:
                    break
                self._read_line(waiting[at:end])
                at = end + 2
        self._waiting = waiting[at:]
        if not self.complete and len(self._waiting) > _LONGEST_SIZE_LINE:
            raise Malformed
        return b"".join(body)

    def _read_line(self, line: bytes) -> None:
        """Read the line before a chunk, or one behind the last."""
        self._head_bytes += len(line) if self._in_trailers else 0
        if self._head_bytes > HEAD_BYTES_MAX:
            raise Malformed
        if self._in_trailers:
            self.complete = not line
            return
        size = _SIZE.fullmatch(line)
        if size is None:
            raise Malformed
        length = int(size[1], 16)
        self._in_trailers = length == 0
        self._left = length + 2 if length else 0


def _head(lines: list[bytes]) -> Head:
    status = _STATUS.fullmatch(lines[0])
    if status is None:
        raise Malformed
    headers: dict[str, str] = {}
    for line in lines[1:]:
        match = _HEADER.fullmatch(line)
        if match is None:  # of no use to us; but what says how long the answer is must be plain
            continue
        name, value = match[1].decode("ascii").lower(), match[2].decode("latin-1").strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise Malformed
        headers.setdefault(name, value)
    return Head(int(status[1]), headers)

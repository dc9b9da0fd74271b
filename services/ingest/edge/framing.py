"""A second opinion on where each HTTP/1.1 request begins and ends.

Promises: bytes whose borders another parser could read differently are refused before anybody acts on them
(both lengths, two lengths, bare CR or LF, folded lines, LF in a chunk extension, trailers), and a head or a
chunked body cannot grow without end. It reads only what borders depend on; the HTTP parser behind it judges
the rest. Proxies and parsers disagreed on exactly these points before, so it does not rely on any one
parser.
"""

import re
from collections.abc import Callable
from typing import ClassVar

MAX_HEAD_BYTES = 16_384
MAX_CHUNK_LINE_BYTES = 256
# Each chunk costs a turn of a loop: 1 MiB in one-byte chunks would buy a second of our time for 6 MB of
# theirs.
MAX_CHUNKS = 16_384

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[\t\x20-\x7e\x80-\xff]*)?")
_LENGTH = re.compile(rb"[0-9]{1,15}")


class BadFraming(ValueError):
    """The border of a request is ambiguous or out of bounds; the connection cannot be used any further."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class RequestFraming:
    """Follows the bytes of one connection from border to border."""

    __slots__ = ("_chunk_count", "_expects", "_left", "_pending")

    def __init__(self) -> None:
        self._expects = "head"
        self._pending = b""
        self._left = 0
        self._chunk_count = 0

    @property
    def mid_head(self) -> bool:
        """Whether a request head has begun and is not complete."""
        return self._expects == "head" and bool(self._pending)

    @property
    def mid_body(self) -> bool:
        """Whether a head is complete and its body is not."""
        return self._expects != "head"

    def feed(self, data: bytes) -> None:
        """Follow the next bytes of the connection. Raises BadFraming; after that the connection is lost."""
        data = self._pending + data
        at = 0
        while at < len(data):
            step = self._STEPS[self._expects](self, data, at)
            if step == at:
                break
            at = step
        self._pending = data[at:]

    def _read_head(self, data: bytes, at: int) -> int:
        if not 0x41 <= data[at] <= 0x5A:
            raise BadFraming(400, "a request begins with a method")
        end = data.find(b"\r\n\r\n", at, at + MAX_HEAD_BYTES)
        if end >= 0:
            self._open_body(data[at : end + 2])
            return end + 4
        if len(data) - at >= MAX_HEAD_BYTES:
            raise BadFraming(431, f"the head is longer than {MAX_HEAD_BYTES} bytes")
        return at

    def _open_body(self, head: bytes) -> None:
        length, is_chunked = judge_head(head)
        if is_chunked:
            self._expects, self._chunk_count = "chunk line", 0
        elif length:
            self._expects, self._left = "body", length

    def _skip_body(self, data: bytes, at: int) -> int:
        taken = min(self._left, len(data) - at)
        self._left -= taken
        if not self._left:
            self._expects = "head"
        return at + taken

    def _read_chunk_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES)
        if end < 0:
            rest = data[at:]
            if len(rest) >= MAX_CHUNK_LINE_BYTES or b"\n" in rest or b"\r" in rest[:-1]:
                raise BadFraming(400, "a chunk size must end in CRLF")
            return at
        line = _CHUNK_LINE.fullmatch(data, at, end)
        self._chunk_count += 1
        if line is None or self._chunk_count > MAX_CHUNKS:
            raise BadFraming(400, "a chunk size is malformed, or there are too many chunks")
        self._left = int(line[1], 16)
        self._expects = "chunk" if self._left else "end"
        return end + 2

    def _skip_chunk(self, data: bytes, at: int) -> int:
        taken = min(self._left, len(data) - at)
        self._left -= taken
        if not self._left:
            self._expects = "chunk end"
        return at + taken

    def _read_chunk_end(self, data: bytes, at: int) -> int:
        return self._read_crlf(data, at, "chunk line", "a chunk must end in CRLF")

    def _read_end(self, data: bytes, at: int) -> int:
        return self._read_crlf(data, at, "head", "trailers are not accepted")

    def _read_crlf(self, data: bytes, at: int, then: str, message: str) -> int:
        found = data[at : at + 2]
        if found == b"\r\n":
            self._expects = then
            return at + 2
        if found != b"\r":
            raise BadFraming(400, message)
        return at

    _STEPS: ClassVar[dict[str, Callable[["RequestFraming", bytes, int], int]]] = {
        "head": _read_head,
        "body": _skip_body,
        "chunk line": _read_chunk_line,
        "chunk": _skip_chunk,
        "chunk end": _read_chunk_end,
        "end": _read_end,
    }


def judge_head(head: bytes) -> tuple[int, bool]:
    """Return (declared body length, chunked) of a head that ends in one CRLF. Raises BadFraming.

    >>> judge_head(b"POST / HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\n")
    (3, False)
    """
    line_count = head.count(b"\r\n")
    if head.count(b"\n") != line_count or head.count(b"\r") != line_count or b"\0" in head:
        raise BadFraming(400, "lines end in CRLF, and neither CR, LF nor NUL may stand alone")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise BadFraming(400, "folded header lines are not accepted")
    lowered = head.lower()
    if not lowered.partition(b"\r\n")[0].endswith((b" http/1.1", b" http/1.0")):
        raise BadFraming(400, "the first line ends in HTTP/1.1")  # HTTP/0.9 has no headers: what follows is ambiguous
    expectation = _only_value(lowered, b"\r\nexpect:")
    if expectation not in (None, b"100-continue"):
        raise BadFraming(417, "the only expectation is 100-continue")
    length = _only_value(lowered, b"\r\ncontent-length:")
    coding = _only_value(lowered, b"\r\ntransfer-encoding:")
    if coding is not None:
        if length is not None or coding != b"chunked" or not lowered.partition(b"\r\n")[0].endswith(b" http/1.1"):
            raise BadFraming(400, "Transfer-Encoding is chunked alone, without Content-Length, in HTTP/1.1")
        return 0, True
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadFraming(400, "Content-Length is one decimal number")
    return int(length or 0), False


def _only_value(lowered_head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header that may occur once. Raises BadFraming when it occurs again."""
    start = lowered_head.find(name)
    if start < 0:
        return None
    if lowered_head.find(name, start + 1) >= 0:
        raise BadFraming(400, f"two headers {name[2:-1].decode()}")
    value_start = start + len(name)
    return lowered_head[value_start : lowered_head.index(b"\r\n", value_start)].strip(b" \t")

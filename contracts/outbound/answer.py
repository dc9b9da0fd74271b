"""One HTTP/1.1 answer as it arrives: llhttp reads it, and this says what of it counts. Pure.

Promises: total over any bytes: each feed returns what of the body they bring, or raises `Malformed`; whoever sends more
than `HEAD_BYTES_MAX` without a byte of body is malformed, so no head, interim answer (1xx, passed over) or trailer is
endless. What arrives behind the answer is noticed, and belongs to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httptools

from contracts.outbound.terms import HungUp, Malformed

HEAD_BYTES_MAX = 32 << 10
_BEGINNING = b"HTTP/1."  # llhttp would take RTSP, too
_SWITCHING = 101  # what nobody asked for, and no interim answer


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers; names in lower case, of a name that is there twice the first."""

    status: int
    headers: Mapping[str, str] = field(repr=False)

    @property
    def ends_with_connection(self) -> bool:
        """Whether nothing else says how long it is."""
        is_chunked = self.headers.get("transfer-encoding", "").lower().rpartition(",")[2].strip() == "chunked"
        return not is_chunked and "content-length" not in self.headers


class AnswerReader:
    """One answer. `head` is there once it is whole, `complete` says that nothing more belongs to it."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self.has_excess = False  # more arrived than belongs to the answer
        self._events = _Events(self)
        self._parser = httptools.HttpResponseParser(self._events)
        self._events.status_of = self._parser.get_status_code
        self._beginning = b""
        self._dry_bytes = 0  # since the last of the body

    def feed(self, data: bytes) -> bytes:
        """Take what arrived; returns what of it is body. Raises Malformed."""
        if self.complete:
            self.has_excess = True
            return b""
        self._check_beginning(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.has_excess = True
        except httptools.HttpParserError:
            if not self.complete:
                raise Malformed from None
            self.has_excess = True
        body = self._events.take()
        self._dry_bytes = 0 if body else self._dry_bytes + len(data)
        if self._dry_bytes > HEAD_BYTES_MAX and not self.complete:
            raise Malformed
        return body

    def end(self) -> None:
        """The other side has closed. Raises HungUp, unless that ends the answer rightly."""
        if self.head is not None and self.head.ends_with_connection:
            self.complete = True
        if not self.complete:
            raise HungUp

    def _check_beginning(self, data: bytes) -> None:
        if len(self._beginning) < len(_BEGINNING):
            self._beginning += data[: len(_BEGINNING) - len(self._beginning)]
            if not _BEGINNING.startswith(self._beginning):
                raise Malformed


class _Events:
    """What llhttp calls; the names are its own."""

    def __init__(self, reader: AnswerReader) -> None:
        self.status_of: Callable[[], int] = int
        self._reader = reader
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._is_interim = False
        self._body: list[bytes] = []

    def take(self) -> bytes:
        """Return what came of the body."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        return body

    def on_message_begin(self) -> None:
        self._reader.has_excess |= self._reader.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES_MAX:  # all of them in one piece
            raise Malformed
        if self._reader.head is None:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        status = self.status_of()
        self._is_interim = 100 <= status <= 199 and status != _SWITCHING
        if self._is_interim:
            self._headers = {}
        elif self._reader.head is None:
            self._reader.head = Head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if not self._reader.complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._is_interim:
            self._reader.complete = True

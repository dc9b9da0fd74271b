"""The lines of a segment, each read when it is asked for: a page of a segment costs what it shows. Pure.

Promises: as many lines as the footer counts, the first and last of them where the header says; what a line holds is the
exact bytes of its entry. Everything else that is wrong with a line shows when it is read. Raises Corrupt.
"""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from contracts.errors import Corrupt
from contracts.positions import entry_key
from contracts.store.log import Poison
from contracts.store.records import Record
from contracts.wire import Entry, decode

FORMAT = 1
MARK_DIGITS = 8
_BEGIN, _END = b'{"p":"', b'"'
_WRONG = (ValueError, KeyError, TypeError, IndexError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one segment; `where` says which. `before` and `after` are digests of the chain."""

    where: str
    pool: str
    epoch: int
    before: bytes
    inner: list[bytes]
    after: bytes

    def records(self, begin: int = 0, end: int | None = None) -> list[Record]:
        """Return entries as they are."""
        return self._each(record_of, begin, end)

    def entries(self, begin: int = 0, end: int | None = None) -> list[Entry | Poison]:
        """Return entries, read; faster than reading records."""
        return self._each(_entry_of, begin, end)

    def behind(self, position: str) -> int:
        """Return the place of the first line behind `position`."""
        return bisect_right(self.inner, entry_key(position), key=self._key)

    def at_or_behind(self, position: str) -> int:
        """Return the place of the first line at `position` or behind it."""
        return bisect_left(self.inner, entry_key(position), key=self._key)

    def find(self, position: str) -> Record | None:
        """Return one record; None when it is not here."""
        place = self.at_or_behind(position)
        found = self.records(place, place + 1)
        return found[0] if found and found[0].position == position else None

    def _key(self, line: bytes) -> tuple[int, int]:
        try:
            return entry_key(_position(line))
        except _WRONG as error:
            raise _unreadable(self.where, error) from error

    def _each(self, read: Callable[[dict[str, Any]], T], begin: int, end: int | None) -> list[T]:
        try:
            return [read(orjson.loads(line)) for line in self.inner[begin:end]]
        except _WRONG as error:
            raise _unreadable(self.where, error) from error


def split(lines: bytes, where: str) -> Lines:
    """Take the lines of a segment apart. Raises Corrupt."""
    head, *inner, foot = lines.split(b"\n")[:-1] or [b""]
    try:
        header, footer = orjson.loads(head), orjson.loads(foot)
        found = Lines(
            where, header["pool"], header["epoch"], bytes.fromhex(header["before"]), inner,
            bytes.fromhex(footer["after"]),
        )  # fmt: skip
        claimed = (footer["count"], header["first"], header["last"], header["segment"])
        fits = claimed == (len(inner), _position(inner[0]), _position(inner[-1]), FORMAT)
    except _WRONG as error:
        raise _unreadable(where, error) from error
    if not fits:
        raise Corrupt(where, "the segment's first and last line do not fit what lies between")
    return found


def line_of(record: Record, digest: bytes) -> bytes:
    """Return the line of a record; `digest` is the chain's after it."""
    mark = digest.hex()[:MARK_DIGITS]
    try:
        return orjson.dumps({"p": record.position, "f": list(map(bytes.decode, record.fields)), "c": mark})
    except UnicodeDecodeError:
        coded = [base64.b64encode(text).decode() for text in record.fields]
        return orjson.dumps({"p": record.position, "x": coded, "c": mark})


def record_of(line: dict[str, Any]) -> Record:
    """Return the record of a line."""
    if "f" in line:
        return Record(line["p"], tuple(map(str.encode, line["f"])))
    return Record(line["p"], tuple(base64.b64decode(text, validate=True) for text in line["x"]))


def _entry_of(line: dict[str, Any]) -> Entry | Poison:
    """Read the entry of a line as `record_of(line).entry()` does, without its exact bytes in between."""
    if "f" not in line:
        return record_of(line).entry()
    texts = iter(line["f"])
    try:
        return decode(line["p"], dict(zip(texts, texts, strict=False)))
    except Corrupt as error:
        return Poison(line["p"], error.reason)


def _position(line: bytes) -> str:
    if not line.startswith(_BEGIN):
        raise ValueError("a line without a position")
    return line[len(_BEGIN) : line.index(_END, len(_BEGIN))].decode()


def _unreadable(where: str, error: Exception) -> Corrupt:
    return Corrupt(where, f"the segment cannot be read: {error!r}")

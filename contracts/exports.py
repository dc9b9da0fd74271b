"""An export of events: whether it is whole, and the entries it was made of. Pure.

Promises: what is not whole, in order and without a hole in any job is refused with the line that says so.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from contracts.envelope import entry_of
from contracts.errors import Corrupt
from contracts.positions import Position, entry_key
from contracts.wire import Entry

END = "export.end"


class BadExport(ValueError):
    """It is not a whole export; the text says where."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a whole export holds."""

    codes: tuple[str, ...]
    jobs: int
    events: int
    sha256: str


def check(lines: Iterable[bytes]) -> Checked:
    """Read it once: sum, positions, and that no job has a hole. Raises BadExport."""
    digest, count, end = hashlib.sha256(), 0, None
    last: dict[str, tuple[int, int]] = {}
    sequences: dict[str, int] = {}
    for number, line, told in _read(lines):
        if end is not None:
            raise BadExport(f"line {number} follows the end")
        if told.get("type") == END:
            end = told
            continue
        position, entry = _entry(told, number)
        key = entry_key(position.entry)
        if key <= last.get(position.pool_code, (-1, 0)):
            raise BadExport(f"line {number}: {position} is not behind the one before it")
        if entry.sequence != sequences.get(entry.subject, 0) + 1:
            raise BadExport(f"line {number}: event {entry.sequence} of {entry.subject} has none before it")
        last[position.pool_code], sequences[entry.subject] = key, entry.sequence
        digest.update(line)
        count += 1
    if end is None:
        raise BadExport("its last line, export.end, is missing")
    if (end.get("count"), end.get("sha256")) != (count, digest.hexdigest()):
        raise BadExport("count or sha256 of its last line are those of other lines")
    return Checked(tuple(sorted(last)), len(sequences), count, digest.hexdigest())


def records(lines: Iterable[bytes], code: str) -> Iterator[tuple[Position, Entry]]:
    """Yield the entries of a pool, each with the position of its job's event before it."""
    previous: dict[str, str] = {}
    for number, _, told in _read(lines):
        if told.get("type") == END:
            return
        position, entry = _entry(told, number)
        if position.pool_code == code:
            yield position, entry._replace(previous=previous.get(entry.subject, ""))
            previous[entry.subject] = entry.position


def _entry(told: dict[str, Any], number: int) -> tuple[Position, Entry]:
    try:
        return entry_of(told, hooked=False)  # nobody is to be told of it again
    except Corrupt as fault:
        raise BadExport(f"line {number}: {fault.reason}") from None


def _read(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    try:
        for number, line in enumerate(lines, 1):
            told = orjson.loads(line)
            if not isinstance(told, dict):
                raise BadExport(f"line {number} is no event")
            yield number, line, told
    except orjson.JSONDecodeError:
        raise BadExport("it holds a line that is not JSON") from None

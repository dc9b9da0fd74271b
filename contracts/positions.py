"""Places in the log. Inside a pool a position is a stream id `<ms>-<seq>`; in public it is
`<poolcode>.<epoch>.<ms>-<seq>`, so that a position of another pool or of a lost log is recognised.
"""

import re
from dataclasses import dataclass

START = "0-0"
_PUBLIC = re.compile(r"([a-z0-9]{2})\.(\d{1,9})\.(\d{1,16}-\d{1,10})")


class BadPosition(ValueError):
    """The text is not a position."""


@dataclass(frozen=True, slots=True)
class Position:
    """A public position: pool code, epoch of the pool's log, stream id in it."""

    pool_code: str
    epoch: int
    entry: str

    def __str__(self) -> str:
        return f"{self.pool_code}.{self.epoch}.{self.entry}"


def parse_position(text: str) -> Position:
    """Read a public position. Raises BadPosition."""
    match = _PUBLIC.fullmatch(text)
    if match is None:
        raise BadPosition(f"not a position: {text[:60]!r}")
    return Position(match[1], int(match[2]), match[3])


def entry_key(entry: str) -> tuple[int, int]:
    """Return (ms, seq) of a stream id, comparable; text does not compare as positions do.

    >>> entry_key("9-10") > entry_key("9-9")
    True
    """
    ms, _, seq = entry.partition("-")
    return int(ms), int(seq or 0)


def entry_ms(entry: str) -> int:
    """Return the server's wall time in ms at which the entry was appended."""
    return int(entry.partition("-")[0])


def before(position: str) -> str:
    """Return a position after which an entry at `position` comes, and none that was there before it.

    >>> before("7-3"), before("7-0"), before("0-0")
    ('7-2', '6-18446744073709551615', '0-0')
    """
    ms, seq = entry_key(position)
    if seq:
        return f"{ms}-{seq - 1}"
    return f"{ms - 1}-{2**64 - 1}" if ms else START


def next_key(position: str) -> tuple[int, int]:
    """Return the key of the first position after this one.

    >>> next_key("7-3"), next_key("6-18446744073709551615") == entry_key("7-0")
    ((7, 4), True)
    """
    ms, seq = entry_key(position)
    return (ms, seq + 1) if seq < 2**64 - 1 else (ms + 1, 0)

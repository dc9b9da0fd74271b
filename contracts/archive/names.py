"""How segments are called: `<pool>/<epoch>/<first>_<last>.ndjson.zst`. Pure."""

import re
from dataclasses import dataclass

from contracts.positions import entry_key

ENDING = ".ndjson.zst"
BODIES_ENDING = ".bodies.zst"
_STEM = r"([a-z0-9_][a-z0-9-]*|_sys)/([0-9]{1,9})/([0-9]{1,16}-[0-9]{1,20})_([0-9]{1,16}-[0-9]{1,20})"
_KEY, _BODIES = re.compile(_STEM + re.escape(ENDING)), re.compile(_STEM + re.escape(BODIES_ENDING))


@dataclass(frozen=True, slots=True)
class SegmentName:
    """One segment of a pool: the epoch of its log, the positions of its first and its last entry."""

    epoch: int
    first: str
    last: str

    def key(self, pool: str) -> str:
        """Return where it lies.

        >>> SegmentName(1, "5-0", "9-2").key("default")
        'default/1/5-0_9-2.ndjson.zst'
        """
        return f"{pool}/{self.epoch}/{self.first}_{self.last}{ENDING}"

    def bodies_key(self, pool: str) -> str:
        """Return where the bodies of the jobs that end in it lie."""
        return f"{pool}/{self.epoch}/{self.first}_{self.last}{BODIES_ENDING}"

    def aside_key(self, pool: str) -> str:
        """Return where it lies once the log has turned out not to hold it any more."""
        return f"{pool}/aside/{self.epoch}_{self.first}_{self.last}{ENDING}"


def parse_key(key: str) -> tuple[str, SegmentName] | None:
    """Return the pool and the segment of a key; None for anything else that lies there."""
    return _parsed(_KEY.fullmatch(key))


def parse_bodies_key(key: str) -> tuple[str, SegmentName] | None:
    """Return the pool and the segment of a key of bodies; None for anything else that lies there."""
    return _parsed(_BODIES.fullmatch(key))


def _parsed(match: re.Match[str] | None) -> tuple[str, SegmentName] | None:
    return None if match is None else (match[1], SegmentName(int(match[2]), match[3], match[4]))


def in_order(names: list[SegmentName]) -> list[SegmentName]:
    """Return them as the log had them."""
    return sorted(names, key=lambda name: (entry_key(name.last), entry_key(name.first), name.epoch))

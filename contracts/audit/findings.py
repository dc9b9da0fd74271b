"""What an audit finds: places where the log cannot be right, and rows of live state that do not follow from it. Pure.

Promises: bounded, however much is wrong; the first bad position is the lowest of all, also of those that are not kept.
"""

from collections import Counter
from dataclasses import dataclass, field

from contracts.positions import entry_key

MOST_KEPT = 50
SAMPLE = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in the log that cannot be right. `kind` is a word of a small set, `what` a sentence."""

    position: str
    kind: str
    what: str


@dataclass(slots=True)
class Findings:
    """All that was found in one log; the first `MOST_KEPT` in full, the rest as counts."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""

    def add(self, position: str, kind: str, what: str) -> None:
        """Take in one finding."""
        self.counts[kind] += 1
        if not self.first or entry_key(position) < entry_key(self.first):
            self.first = position
        if len(self.kept) < MOST_KEPT:
            self.kept.append(Finding(position, kind, what))


@dataclass(slots=True)
class Projection:
    """Rows of one kind of live state, and how many are not what the log says. `unknown`: their log begins too late."""

    name: str
    rows: int = 0
    differing: int = 0
    unknown: int = 0
    sample: list[str] = field(default_factory=list)

    def compare(self, row: str, expected: object, live: object) -> bool:
        """Take in one row; returns whether both are the same."""
        self.rows += 1
        if expected != live:
            self.differs(row, f"the log says {_short(expected)}, the store {_short(live)}")
        return expected == live

    def differs(self, row: str, what: str) -> None:
        """Take in a row that was counted before, or that should not be there."""
        self.differing += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(f"{row}: {what}")


def _short(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."

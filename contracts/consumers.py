"""Who reads a log or a worker's stream, how far each is, and what of that is known. Pure.

Promises: a lag is a number only where the store counts it and nothing contradicts it; what is not known is None, never
0. `behind_ms` is always known: it is the age of the first entry that waits.
"""

from dataclasses import dataclass

from contracts.positions import START, entry_key

ACTIVE_MS = 60_000  # a member that asked for work since then is alive


@dataclass(frozen=True, slots=True)
class Member:
    """A process that reads as part of a group. `idle_ms`: since it asked for something."""

    name: str
    pending: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class OldestPending:
    """The first entry that was handed out and is not done with."""

    position: str
    member: str
    age_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A group, or a cursor that is kept in its place, at one moment."""

    pool: str
    stream: str  # "log", or the worker whose stream it is
    group: str
    position: str  # up to where it was read
    lag: int | None
    behind_ms: int
    pending: int = 0
    oldest: OldestPending | None = None
    members: tuple[Member, ...] = ()
    until_ms: int | None = None  # of a cursor: until when somebody is at work on it
    holds_log: bool = False  # the log is kept for it beyond what everybody else needs

    def is_read(self, now_ms: int) -> bool:
        """Whether somebody is at it.

        >>> Standing("default", "log", "g", "1-0", None, 0, members=(Member("c", 0, ACTIVE_MS + 1),)).is_read(5)
        False
        """
        is_led = self.until_ms is not None and self.until_ms > now_ms
        return is_led or any(member.idle_ms <= ACTIVE_MS for member in self.members)


def known_lag(told: int | None, length: int, *, is_behind: bool) -> int | None:
    """Return how many entries wait for a group, None where nobody knows.

    Args:
        told: what the store says; None after entries were deleted one by one, or where it does not know what was read.
        length: entries in the stream: a lag above it counts some that were trimmed away unread.
        is_behind: whether an entry waits.

    >>> known_lag(None, 9, is_behind=True), known_lag(8, 2, is_behind=True), known_lag(0, 9, is_behind=True)
    (None, None, None)
    >>> known_lag(2, 9, is_behind=True), known_lag(0, 9, is_behind=False)
    (2, 0)
    """
    if told is None or not 0 <= told <= length or (told > 0) is not is_behind:
        return None
    return told


def holders(standings: list[Standing], archived: str) -> set[str]:
    """Return the groups of one log that keep it from being trimmed up to where it is archived: the rearmost ones."""
    needs = {each.group: _needs(each) for each in standings}
    rearmost = min(needs.values(), key=entry_key, default=START)
    if entry_key(rearmost) >= entry_key(archived):
        return set()
    return {group for group, position in needs.items() if position == rearmost}


def _needs(standing: Standing) -> str:
    return standing.position if standing.oldest is None else standing.oldest.position

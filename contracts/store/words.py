"""What the function library answers."""

from enum import StrEnum


class Word(StrEnum):
    """APPLIED: it is so, now or already. The others wrote nothing."""

    APPLIED = "APPLIED"
    FENCED = "FENCED"  # the attempt, or the leadership, is somebody else's
    CONFLICT = "CONFLICT"  # the state moved on: read again, decide again
    GONE = "GONE"  # there is no such job, worker or log
    REFUSED = "REFUSED"  # a limit, an offer that is gone, a number out of order

"""Times as people read them: RFC 3339 in UTC with milliseconds. Inside, a time is an integer of milliseconds."""

from datetime import UTC, datetime
from functools import lru_cache


def instant(real_ms: int | None) -> str | None:
    """Write a wall time; None stays None.

    >>> instant(1764457200123)
    '2025-11-29T23:00:00.123Z'
    """
    if real_ms is None:
        return None
    seconds, ms = divmod(real_ms, 1000)
    return f"{_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    # What is shown is mostly about the last few seconds, and calendars are slow.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

"""Times as people read them: RFC 3339 in UTC with milliseconds. Inside, a time is an integer of milliseconds."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import overload

DAY_MS = 86_400_000
_EPOCH = datetime.fromtimestamp(0, UTC)
_MS = timedelta(milliseconds=1)


@overload
def ms_of(moment: datetime) -> int: ...
@overload
def ms_of(moment: datetime | None) -> int | None: ...
def ms_of(moment: datetime | None) -> int | None:
    """Return a wall time in whole milliseconds; exact, which a float of seconds is not from 2038 on. None stays None.

    >>> ms_of(datetime.fromisoformat("2025-11-29T23:00:00.123999Z"))
    1764457200123
    """
    return None if moment is None else (moment - _EPOCH) // _MS


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
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]  # strftime leaves zeros of the year out


@lru_cache(maxsize=4_096)
def day_text(day: int) -> str:
    """Write a UTC day, given as days since 1970.

    >>> day_text(20_421)
    '2025-11-29'
    """
    return datetime.fromtimestamp(day * DAY_MS // 1000, UTC).strftime("%Y-%m-%d")


def day_number(text: str) -> int:
    """Read a UTC day as days since 1970. Raises ValueError.

    >>> day_number("1970-01-02")
    1
    """
    return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1000 // DAY_MS

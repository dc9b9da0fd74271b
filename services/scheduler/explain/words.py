"""Times and sizes as people read them. Pure."""

from datetime import UTC, datetime


def clock_text(at_ms: int) -> str:
    """Return a wall time.

    >>> clock_text(1_764_457_200_123)
    '2025-11-29T23:00:00Z'
    """
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(ms: float) -> str:
    """Return a duration.

    >>> duration_text(940), duration_text(61_400), duration_text(7_300_000)
    ('0.9 s', '61 s', '122 min')
    """
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def size_text(count: int) -> str:
    """Return a number of bytes.

    >>> size_text(200 << 30), size_text(700 << 20)
    ('200.0 GiB', '700 MiB')
    """
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"


def jobs_text(count: int) -> str:
    """Return a number of jobs.

    >>> jobs_text(1), jobs_text(2)
    ('1 job', '2 jobs')
    """
    return f"{count} job" if count == 1 else f"{count} jobs"

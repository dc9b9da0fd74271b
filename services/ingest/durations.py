"""A histogram of durations. Pure."""

from bisect import bisect_left

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BOUNDS = (*(repr(bound) for bound in BUCKETS_S), "+Inf")


class Durations:
    """A histogram of one series."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * len(_BOUNDS)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return (bound, durations up to it)."""
        total, found = 0, []
        for bound, count in zip(_BOUNDS, self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found

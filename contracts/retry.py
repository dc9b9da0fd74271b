"""Retry schedules: attempt number -> delay. Pure; chance comes in as a number in [0, 1)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays from `base_ms`, doubled for each attempt, capped, spread by +-`jitter_ratio`."""

    base_ms: int = 5_000
    cap_ms: int = 600_000
    jitter_ratio: float = 0.2

    def delay_ms(self, attempt: int, chance: float) -> int:
        """Return how long to wait after failed attempt number `attempt` (from 1), in ms.

        >>> [Backoff().delay_ms(n, 0.5) for n in (1, 2, 3, 10**6)]
        [5000, 10000, 20000, 600000]
        """
        # The exponent is bounded before the shift: 2**(10**6) would be computed in full otherwise.
        doubled = self.base_ms << min(max(attempt, 1) - 1, 40)
        return _spread(min(doubled, self.cap_ms), self.jitter_ratio, chance)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A fixed list of delays, one per try, each spread by +-`jitter_ratio`; after the last there is no more."""

    delays_s: tuple[float, ...]
    jitter_ratio: float = 0.2

    def delay_ms(self, attempt: int, chance: float) -> int | None:
        """Return the delay before try number `attempt` (from 1), or None when the schedule is used up."""
        if not 1 <= attempt <= len(self.delays_s):
            return None
        return _spread(round(self.delays_s[attempt - 1] * 1000), self.jitter_ratio, chance)

    @property
    def longest_s(self) -> float:
        """How long it takes from the first try to the last, at most.

        >>> Schedule((0, 5, 300)).longest_s
        366.0
        """
        return sum(self.delays_s) * (1 + self.jitter_ratio)

    @property
    def tries(self) -> int:
        """How many tries the schedule holds."""
        return len(self.delays_s)


def parse_delays(text: str) -> tuple[float, ...]:
    """Read `0,5,300` as delays in seconds. Raises ValueError with what is wrong."""
    try:
        delays = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        delays = ()
    if not delays or any(not 0 <= delay <= 604_800 for delay in delays):
        raise ValueError("give one delay or more in seconds, each between 0 and 604800, separated by commas")
    return delays


def _spread(delay_ms: int, ratio: float, chance: float) -> int:
    return max(0, round(delay_ms * (1 + ratio * (2 * chance - 1))))


WEBHOOK_DELAYS_S: Sequence[float] = (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)

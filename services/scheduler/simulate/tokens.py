"""Tokens of external limits in a simulation: at most `rate` in any window, all of them for this pool. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping

from services.scheduler.fold.limits import Limit


class Tokens:
    """Who gives them. Times are ms of the simulated clock."""

    def __init__(self) -> None:
        self._given: dict[str, deque[tuple[int, int]]] = {}  # by limit: when, how many

    def give(self, name: str, limit: Limit, wanted: int, now_ms: int) -> int:
        """Return how many of the wanted tokens there are now."""
        given = self._given.setdefault(name, deque())
        while given and given[0][0] + limit.window_ms <= now_ms:
            given.popleft()
        n = min(wanted, limit.rate - sum(some for _, some in given))
        if n > 0:
            given.append((now_ms, n))
        return max(0, n)

    def more_at_ms(self, limits: Mapping[str, Limit], names: Iterable[str]) -> int | None:
        """Return when there will be more of one of these; None when nothing is out."""
        oldest = ((self._given.get(name), limits[name].window_ms) for name in names)
        return min((given[0][0] + window_ms for given, window_ms in oldest if given), default=None)

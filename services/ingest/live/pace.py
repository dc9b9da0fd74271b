"""Progress no more often than a listener asked for. Pure: it is told the time.

Promises: of the progress of one job within an interval the newest is shown, at the latest when the interval is over or
something else of the job is; everything else is shown at once, and the order of a job stays.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from services.ingest.live.subscription import PREVIEW, Told

PACED = frozenset({"job.progress", PREVIEW})
MOST_JOBS = 1_000

T = TypeVar("T", bound=Told)


class Pace(Generic[T]):
    """What is held back for a listener. An interval of 0 holds nothing back."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._shown_s: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._held: dict[tuple[str, str], T] = {}

    def take(self, told: T, now_s: float) -> list[T]:
        """Return what is shown now that `told` is there."""
        if self._interval_s <= 0:
            return [told]
        key = (told.subject, told.type)
        if told.type not in PACED:
            held = [self._held.pop(each) for each in [each for each in self._held if each[0] == told.subject]]
            return [*held, told]
        if now_s < self._shown_s.get(key, float("-inf")) + self._interval_s:
            self._held[key] = told
            return []
        self._note(key, now_s)
        return [told]

    def due(self, now_s: float) -> list[T]:
        """Return what was held back long enough."""
        keys = [key for key in self._held if now_s >= self._shown_s.get(key, 0.0) + self._interval_s]
        for key in keys:
            self._note(key, now_s)
        return [self._held.pop(key) for key in keys]

    def wait_s(self, now_s: float, most_s: float) -> float:
        """Return how long until something is due, `most_s` at most."""
        waits = (self._shown_s.get(key, 0.0) + self._interval_s - now_s for key in self._held)
        return max(0.0, min(most_s, *waits)) if self._held else most_s

    def _note(self, key: tuple[str, str], now_s: float) -> None:
        self._shown_s[key] = now_s
        self._shown_s.move_to_end(key)
        while len(self._shown_s) > MOST_JOBS:
            self._shown_s.popitem(last=False)

"""The store's time, as far as this process knows it: its last answer plus what has passed here since.

Promises: never goes back, and does not depend on this host's wall clock, so due times mean the same on all hosts.
"""

from collections.abc import Callable


class ServerClock:
    """`mono_s` is a monotonic clock in seconds; 0 is the time until the first observation."""

    def __init__(self, mono_s: Callable[[], float]) -> None:
        self._mono_s = mono_s
        self._offset_ms = 0.0
        self._last_ms = 0

    def observe(self, now_ms: int) -> None:
        """Take over the server's time from a reply that has just come."""
        self._offset_ms = now_ms - self._mono_s() * 1000

    def now_ms(self) -> int:
        """Return the server's wall time in ms."""
        self._last_ms = max(self._last_ms, round(self._mono_s() * 1000 + self._offset_ms))
        return self._last_ms

    def mono_ms(self) -> int:
        """Return this process's monotonic time in ms, for comparing only."""
        return round(self._mono_s() * 1000)

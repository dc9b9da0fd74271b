"""The store's wall time as the leader knows it: of the last reply plus monotonic time since, never falling. Pure."""


class ServerClock:
    """Server time in ms. Knows nothing until the first reply was heard."""

    def __init__(self) -> None:
        self._heard_ms = 0
        self._heard_at_ms = 0
        self._last_ms = 0

    def hear(self, server_ms: int, mono_ms: int) -> None:
        """Note the time in a reply that has just arrived."""
        self._heard_ms, self._heard_at_ms = server_ms, mono_ms

    def now_ms(self, mono_ms: int) -> int:
        """Return the time now; a server whose clock was set back makes it stand still, not fall.

        >>> clock = ServerClock(); clock.hear(5_000, 10); clock.now_ms(30)
        5020
        """
        self._last_ms = max(self._last_ms, self._heard_ms + mono_ms - self._heard_at_ms)
        return self._last_ms

"""Whose device time it is while several attempts run in one pass. Pure; time comes in."""


class Shares:
    """Divides the time of a pass among those that are in it at each moment: what they are charged adds up to it."""

    def __init__(self, members: int, now_ms: float) -> None:
        self._members, self._since_ms, self._each_ms = members, now_ms, 0.0

    def leave(self, now_ms: float) -> int:
        """Return what a member that leaves now has used.

        >>> shares = Shares(members=2, now_ms=0)
        >>> shares.leave(now_ms=100), shares.leave(now_ms=300)
        (50, 250)
        """
        self._each_ms += (now_ms - self._since_ms) / max(1, self._members)
        self._members, self._since_ms = self._members - 1, now_ms
        return round(self._each_ms)

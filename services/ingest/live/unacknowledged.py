"""What a client of a socket was told and has not acknowledged: how slow it is behind all the buffers between. Pure.

Promises: only a client that acknowledges is judged by it; one that is MOST_WAITING behind is as slow as one whose queue
is full here. An acknowledged place counts for all that was told before it; one that was never told changes nothing.
"""

from collections import deque

from services.ingest.live.subscription import MOST_WAITING


class Unacknowledged:
    """One channel."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._told: deque[str] = deque(maxlen=most + 1)
        self._is_counting = False

    @property
    def is_slow(self) -> bool:
        """Whether the client is too far behind."""
        return self._is_counting and len(self._told) > self._most

    def tell(self, place: str) -> None:
        """Note what was told; '' is no place."""
        if place:
            self._told.append(place)

    def acknowledge(self, place: str) -> None:
        """Take what a client says it has."""
        self._is_counting = True
        if place in self._told:
            while self._told.popleft() != place:
                pass

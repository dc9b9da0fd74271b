"""Claimed deliveries that wait for a free place at their receiver: one lane per receiver, served in turn.

Promises: a lane never has more than its limit under way, so a slow receiver holds up its own lane and nobody
else's; lanes with work are served round-robin, however long one of them is; memory is bounded by two limits.
Does not promise: order inside a lane across processes, nor that a refused delivery is remembered. It need
not be: its claim in the store runs out, and it is claimed again.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours until its claim runs out; beyond `start_by_ms` an attempt might outlive the claim."""

    pool: str
    delivery_id: str
    lane: str
    start_by_ms: int


class Lanes:
    """The waiting room between the due zset and the attempts under way."""

    def __init__(self, *, running_max: int, lane_running_max: int, waiting_max: int, lane_waiting_max: int) -> None:
        self._running_max = running_max
        self._lane_running_max = lane_running_max
        self._waiting_max = waiting_max
        self._lane_waiting_max = lane_waiting_max
        self._waiting: dict[str, deque[Claimed]] = {}
        self._running: Counter[str] = Counter()
        self._turn: deque[str] = deque()  # each lane that has both work and room, once
        self._start_by_ms: dict[str, int] = {}  # of every delivery that is here, also while it is under way

    @property
    def running(self) -> int:
        """How many attempts are under way."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many claimed deliveries wait for their lane."""
        return len(self._start_by_ms) - self.running

    @property
    def room(self) -> int:
        """How many more deliveries may be claimed."""
        return max(0, self._waiting_max - self.waiting)

    def offer(self, claimed: Claimed) -> bool:
        """Take a delivery into its lane; False when the lane is full. One that is here only has its claim renewed."""
        if claimed.delivery_id in self._start_by_ms:
            self._start_by_ms[claimed.delivery_id] = claimed.start_by_ms
            return True
        line = self._waiting.setdefault(claimed.lane, deque())
        if len(line) >= self._lane_waiting_max or self.room == 0:
            self._drop_if_empty(claimed.lane)
            return False
        line.append(claimed)
        self._start_by_ms[claimed.delivery_id] = claimed.start_by_ms
        if len(line) == 1 and self._has_room(claimed.lane):
            self._turn.append(claimed.lane)
        return True

    def take(self, now_ms: int) -> Claimed | None:
        """Start the next delivery; None when every lane with work is at its limit, or the whole process is.

        Deliveries whose claim is too old are let go: another claim, perhaps another process, will bring them.
        """
        while self._turn and self.running < self._running_max:
            lane = self._turn.popleft()
            claimed = self._waiting[lane].popleft()
            started = now_ms <= self._start_by_ms[claimed.delivery_id]
            if started:
                self._running[lane] += 1
            else:
                del self._start_by_ms[claimed.delivery_id]
            self._queue_again(lane)
            if started:
                return claimed
        return None

    def release(self, claimed: Claimed) -> None:
        """An attempt that was taken is over."""
        lane = claimed.lane
        del self._start_by_ms[claimed.delivery_id]
        was_full = not self._has_room(lane)
        self._running[lane] -= 1
        if self._running[lane] <= 0:
            del self._running[lane]
        if was_full and self._waiting.get(lane):
            self._turn.append(lane)

    def clear(self) -> list[Claimed]:
        """Forget what waits and return it; attempts under way stay."""
        waiting = [claimed for line in self._waiting.values() for claimed in line]
        for claimed in waiting:
            del self._start_by_ms[claimed.delivery_id]
        self._waiting.clear()
        self._turn.clear()
        return waiting

    def _queue_again(self, lane: str) -> None:
        if not self._waiting[lane]:
            self._drop_if_empty(lane)
        elif self._has_room(lane):
            self._turn.append(lane)

    def _has_room(self, lane: str) -> bool:
        return self._running[lane] < self._lane_running_max

    def _drop_if_empty(self, lane: str) -> None:
        if not self._waiting[lane]:
            del self._waiting[lane]

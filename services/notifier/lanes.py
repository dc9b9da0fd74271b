"""Claimed deliveries that wait for a free place at their receiver: one lane per receiver, served in turn.

Promises: a lane never has more than its limit under way, so a slow receiver holds up its own lane and nobody
else's; lanes with work are served round-robin, however long one of them is; memory is bounded, and however full
a lane is, it leaves room for the others: a lane may fill half of what is free, and no more.
Does not promise order inside a lane across processes, nor to keep what it refuses: `put_off_ms` says when a
refused delivery is expected to find room, and until then it waits in the store, where any process may claim it.
"""

from collections import Counter, deque
from dataclasses import dataclass

ATTEMPT_MS_AT_FIRST = 10.0  # until an attempt of the lane has ended: too little costs a few claims more
NEWEST_WEIGHT = 0.2
PUT_OFF_MIN_MS, PUT_OFF_MAX_MS = 200, 60_000


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours until its claim runs out."""

    pool: str
    delivery_id: str
    lane: str


class Lanes:
    """The waiting room between the due zset and the attempts under way. All times are of one monotonic clock."""

    def __init__(self, *, running_max: int, lane_running_max: int, waiting_max: int) -> None:
        self._running_max = running_max
        self._lane_running_max = lane_running_max
        self._waiting_max = waiting_max
        self._waiting: dict[str, deque[Claimed]] = {}
        self._running: Counter[str] = Counter()
        self._turn: deque[str] = deque()  # each lane that has both work and room, once
        self._start_by_ms: dict[str, int] = {}  # of every delivery that is here, also while it is under way
        self._attempt_ms: dict[str, float] = {}  # moving average of the lane
        self._put_off_until_ms: dict[str, float] = {}

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
        """How many more deliveries may wait here."""
        return max(0, self._waiting_max - self.waiting)

    def offer(self, claimed: Claimed, start_by_ms: int) -> bool:
        """Take a delivery into its lane; False when the lane is full. One that is here has its claim renewed."""
        if claimed.delivery_id in self._start_by_ms:
            self._start_by_ms[claimed.delivery_id] = start_by_ms
            return True
        line = self._waiting.get(claimed.lane)
        if len(line or ()) >= self.room:
            return False
        if line is None:
            line = self._waiting[claimed.lane] = deque()
            if self._has_room(claimed.lane):
                self._turn.append(claimed.lane)
        line.append(claimed)
        self._start_by_ms[claimed.delivery_id] = start_by_ms
        return True

    def put_off_ms(self, lane: str, count: int, now_ms: int) -> int:
        """Return how long `count` refused deliveries of a lane should stay away.

        They are lined up behind those put off before, at the pace of the lane: a long backlog then comes back
        piece by piece, and is not claimed and refused as a whole again and again.
        """
        pace_ms = self._attempt_ms.get(lane, ATTEMPT_MS_AT_FIRST) / self._lane_running_max
        free_at_ms = now_ms + len(self._waiting.get(lane, ())) * pace_ms
        at_ms = max(self._put_off_until_ms.get(lane, 0), free_at_ms)
        self._put_off_until_ms[lane] = min(at_ms + count * pace_ms, now_ms + PUT_OFF_MAX_MS)
        return min(PUT_OFF_MAX_MS, max(PUT_OFF_MIN_MS, round(at_ms - now_ms)))

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

    def release(self, claimed: Claimed, attempt_ms: int) -> None:
        """An attempt that was taken is over, after `attempt_ms`."""
        lane = claimed.lane
        del self._start_by_ms[claimed.delivery_id]
        was_full = not self._has_room(lane)
        self._running[lane] -= 1
        average_ms = self._attempt_ms.get(lane, attempt_ms)
        self._attempt_ms[lane] = average_ms + NEWEST_WEIGHT * (attempt_ms - average_ms)
        if lane in self._waiting:
            if was_full:
                self._turn.append(lane)
        elif self._running[lane] == 0:
            self._forget(lane)

    def held(self, pool: str) -> list[str]:
        """Return the ids of a pool's deliveries that wait here."""
        return [claimed.delivery_id for line in self._waiting.values() for claimed in line if claimed.pool == pool]

    def renew(self, delivery_ids: list[str], start_by_ms: int) -> None:
        """The claims of these are good for longer."""
        for delivery_id in delivery_ids:
            if delivery_id in self._start_by_ms:
                self._start_by_ms[delivery_id] = start_by_ms

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
            del self._waiting[lane]
            if self._running[lane] == 0:
                self._forget(lane)
        elif self._has_room(lane):
            self._turn.append(lane)

    def _has_room(self, lane: str) -> bool:
        return self._running[lane] < self._lane_running_max

    def _forget(self, lane: str) -> None:
        """Keep nothing of a lane that is idle: names of receivers come and go without end."""
        for about in (self._running, self._attempt_ms, self._put_off_until_ms):
            about.pop(lane, None)

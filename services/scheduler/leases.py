"""Which workers and attempts are lost, judged from what the leader itself has seen of the heartbeat counters. Pure.

A worker is lost when its counter stood still in the leader's own successful reads for a whole lease of its monotonic
clock. Anything that could make it look so by mistake restarts all leases: a takeover, a read that failed, one that came
late, a turn that could not be written (nor could a heartbeat). So an outage of the store, or of this process, costs
nobody anything.
An attempt is lost, its worker alive, when two successive beats begun after its start do not list it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Attempt = tuple[str, int]  # job and fence


@dataclass(frozen=True, slots=True)
class Pulse:
    """A worker's heartbeat as read: its counter and the attempts it lists."""

    counter: int
    held: frozenset[Attempt]


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker whose counter stood still; the reclaim compares it once more."""

    worker_id: str
    counter: int
    silent_ms: int


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt its living worker knows nothing of."""

    worker_id: str
    job_id: str
    fence: int
    counter: int


@dataclass(slots=True)
class _Seen:
    counter: int
    since_ms: int


@dataclass(slots=True)
class _Missing:
    from_counter: int  # a beat with this counter was begun after the start
    missed_at: int | None = None  # the counter of the beat that did not list it


class Leases:
    """The leases of all workers of a pool, as one leader sees them."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._workers: dict[str, _Seen] = {}
        self._attempts: dict[tuple[str, Attempt], _Missing] = {}
        self._lost: dict[tuple[str, Attempt], int] = {}
        self._read_ms: int | None = None
        self._now_ms = 0

    def restart(self) -> None:
        """Begin all leases anew, because a read or a turn failed, or a read came late."""
        self._workers.clear()
        self._attempts.clear()
        self._lost.clear()
        self._read_ms = None

    def read(
        self, begun_ms: int, ended_ms: int, pulses: Mapping[str, Pulse], running: Iterable[tuple[str, Attempt]]
    ) -> None:
        """Take in a successful read of all pulses; `running`: worker and attempt of each the log says is running."""
        late_ms = self._lease_ms // 2
        if ended_ms - (self._read_ms if self._read_ms is not None else begun_ms) > late_ms:
            self.restart()
        self._read_ms = self._now_ms = ended_ms
        for worker_id, pulse in pulses.items():
            seen = self._workers.get(worker_id)
            if seen is None or seen.counter != pulse.counter:
                self._workers[worker_id] = _Seen(pulse.counter, ended_ms)
        self._miss(pulses, set(running))

    def forget(self, worker_id: str) -> None:
        """Stop watching a worker that is gone from the log."""
        self._workers.pop(worker_id, None)

    def lost_workers(self, known: Iterable[str]) -> list[LostWorker]:
        """Return which of the workers in the log are lost, longest silent first."""
        if self._read_ms is None:
            return []
        lost = []
        for worker_id in known:
            # a worker in the log without a hash is watched from the first read that shows it missing
            seen = self._workers.setdefault(worker_id, _Seen(-1, self._now_ms))
            silent_ms = self._now_ms - seen.since_ms
            if silent_ms >= self._lease_ms:
                lost.append(LostWorker(worker_id, seen.counter, silent_ms))
        return sorted(lost, key=lambda worker: (-worker.silent_ms, worker.worker_id))

    def lost_attempts(self) -> list[LostAttempt]:
        """Return the attempts that two successive beats did not list."""
        return [LostAttempt(worker, job, fence, at) for (worker, (job, fence)), at in sorted(self._lost.items())]

    def _miss(self, pulses: Mapping[str, Pulse], running: set[tuple[str, Attempt]]) -> None:
        self._attempts = {key: missing for key, missing in self._attempts.items() if key in running}
        self._lost = {}
        for key in running:
            worker_id, attempt = key
            pulse = pulses.get(worker_id)
            if pulse is None:
                continue
            # the beat under way at the start may carry a list from before it, so the first that counts is the next
            missing = self._attempts.setdefault(key, _Missing(pulse.counter + 2))
            if attempt in pulse.held:
                missing.missed_at = None
            elif pulse.counter >= missing.from_counter:
                if missing.missed_at is None:
                    missing.missed_at = pulse.counter
                elif pulse.counter > missing.missed_at:
                    self._lost[key] = pulse.counter

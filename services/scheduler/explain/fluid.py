"""When a job should start, if work were a fluid: what is before it runs over the slots as they become free. Pure.

Times in ms from now, work in ms of device time. Nothing here is exact, and nothing needs to be: the estimates are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

MOST_ROUNDS = 16
MOST_WHOLE = 256  # jobs that are dealt out one by one, since each runs on one slot only


def time_until(work_ms: float, free_in_ms: Sequence[int]) -> float:
    """Return when `work_ms` are done by slots that become free at these times, and one of them is free.

    >>> time_until(0, [3_000, 9_000]), time_until(8_000, [3_000, 9_000]), time_until(4_000, [0, 0])
    (3000.0, 10000.0, 2000.0)
    """
    level, held_ms = 0.0, 0.0
    for count, free_ms in enumerate(sorted(free_in_ms), 1):
        held_ms += free_ms
        level = (work_ms + held_ms) / count
        if count == len(free_in_ms) or level <= sorted(free_in_ms)[count]:
            return level
    return level


def start_after(jobs: float, work_ms: float, free_in_ms: Sequence[int]) -> float:
    """Return when a job starts behind so many jobs, which take `work_ms` in all; a few are dealt out one by one.

    >>> start_after(1, 10_000, [0, 0]), start_after(2, 20_000, [0, 0]), start_after(0, 0, [7, 3])
    (0.0, 10000.0, 3.0)
    """
    count = round(jobs)
    if count > MOST_WHOLE or not free_in_ms:
        return time_until(work_ms, free_in_ms)
    free = [float(each) for each in free_in_ms]
    heapify(free)
    for _ in range(count):
        heapreplace(free, free[0] + work_ms / count)
    return free[0]


@dataclass(slots=True)
class Demand:
    """Work before a job, by tier. `owed`: by virtual time; `pending`: all that waits, which a floor may serve first."""

    own_ms: float = 0.0  # of the job's own tenant
    owed_ms: dict[str, float] = field(default_factory=dict)
    pending_ms: dict[str, float] = field(default_factory=dict)


def work_before(demand: Demand, tier: str, floors: Mapping[str, float]) -> float:
    """Return how much the pool serves before the job's tenant is the fair choice and its own turn has come.

    A tier with a floor may take that share of everything that is served meanwhile, as long as it has work; the job's
    own tier has its floor as well, and whichever way is shorter counts.
    """
    own_ms = demand.own_ms + demand.owed_ms.get(tier, 0.0)
    total = own_ms + sum(ms for name, ms in demand.owed_ms.items() if name != tier)
    for _ in range(MOST_ROUNDS):
        before = total
        total = own_ms + sum(
            max(ms, min(demand.pending_ms.get(name, ms), floors.get(name, 0.0) * before))
            for name, ms in demand.owed_ms.items()
            if name != tier
        )
        if total - before < 1:
            break
    floor = floors.get(tier, 0.0)
    return min(total, own_ms / floor) if floor else total

"""Queues to compare with: first come first served, strict priority of tiers, round robin over tenants. Pure.

They offer to idle devices only, take one that has the model if there is a choice, and else know nothing of models.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

from services.scheduler.simulate.arrivals import Arrival, Ran
from services.scheduler.simulate.clocked import Offer
from services.scheduler.simulate.fleet import SimSlot

RANKS = {"enterprise": 0, "standard": 1, "free": 2}


class Lines:
    """Jobs in lines by key: the first line in order is served, or each in turn."""

    def __init__(self, key: Callable[[Arrival], str], *, turns: bool = False) -> None:
        self._key, self._turns = key, turns
        self._lines: dict[str, deque[Arrival]] = {}

    def push(self, arrival: Arrival) -> None:
        """Put a job into its line."""
        self._lines.setdefault(self._key(arrival), deque()).append(arrival)

    def pop(self) -> Arrival | None:
        """Return the next job."""
        if not self._lines:
            return None
        name = next(iter(self._lines)) if self._turns else min(self._lines)
        line = self._lines.pop(name)
        job = line.popleft()
        if line:
            self._lines[name] = line  # behind the others
        return job


class Simple:
    """A scheduler of these lines, as the simulation asks one."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._offers = count()

    def submit(self, arrival: Arrival, now_ms: int) -> None:
        """See Scheduler."""
        self._lines.push(arrival)

    def started(self, job: Ran, offer: str, slot: SimSlot, now_ms: int) -> None:
        """See Scheduler."""

    def loaded(self, job: Ran, slot: SimSlot, now_ms: int) -> None:
        """See Scheduler."""

    def ended(self, job: Ran, slot: SimSlot, device_ms: int, now_ms: int) -> None:
        """See Scheduler."""

    def decide(self, slots: Sequence[SimSlot], now_ms: int) -> tuple[list[Offer], list[str], list[str], bool]:
        """See Scheduler."""
        idle = [slot for slot in slots if slot.running is None and not slot.deck]
        offers: list[Offer] = []
        while idle and (job := self._lines.pop()) is not None:
            slot = next((slot for slot in idle if job.model in slot.resident), idle[0])
            idle.remove(slot)
            offers.append((f"o{next(self._offers)}", job.job_id, slot.index))
        return offers, [], [], False

    def wakes_at_ms(self, slots: Sequence[SimSlot], now_ms: int) -> int | None:
        """See Scheduler."""
        return None


def fifo() -> Simple:
    """First come, first served."""
    return Simple(Lines(lambda arrival: ""))


def strict() -> Simple:
    """Enterprise before standard before free, whatever that means for the others."""
    return Simple(Lines(lambda arrival: str(RANKS[arrival.tier])))


def round_robin() -> Simple:
    """One job of each tenant in turn, as queues with groups do."""
    return Simple(Lines(lambda arrival: arrival.tenant_id, turns=True))

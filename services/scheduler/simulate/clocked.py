"""The simulation: a queue of moments, slots that obey, and a scheduler behind one interface. Pure.

Promises: a job ends at most once; a slot runs one job at a time and holds one on deck; the same input gives the same
output. What costs time in reality and not here: calls, messages, the start of a process.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from services.scheduler.simulate.arrivals import Arrival, Ran
from services.scheduler.simulate.fleet import Device, SimSlot

Offer = tuple[str, str, int]  # offer, job, slot
MOST_TURNS = 1_000  # at one moment; a scheduler that does not come to rest is broken


class Scheduler(Protocol):
    """What decides. Times are ms of the simulated clock."""

    def submit(self, arrival: Arrival, now_ms: int) -> None:
        """A job was admitted."""

    def started(self, job: Ran, offer: str, slot: SimSlot, now_ms: int) -> None:
        """A slot began with the job; `job.load_ms` says whether its model must be loaded first."""

    def loaded(self, job: Ran, slot: SimSlot, now_ms: int) -> None:
        """The job's model is in memory."""

    def ended(self, job: Ran, slot: SimSlot, device_ms: int, now_ms: int) -> None:
        """The job is done."""

    def decide(self, slots: Sequence[SimSlot], now_ms: int) -> tuple[list[Offer], list[str], list[str], bool]:
        """Return new offers, offers taken back, jobs that expired, and whether to be asked again at this moment."""

    def wakes_at_ms(self, slots: Sequence[SimSlot], now_ms: int) -> int | None:
        """Return when it wants to decide although nothing happens."""


def simulate(
    arrivals: Iterable[Arrival], devices: Sequence[Device], scheduler: Scheduler, until_ms: int | None = None
) -> list[Ran]:  # fmt: skip
    """Return what became of every job, by arrival; the clock stops at `until_ms`, or when all have ended."""
    world = _World(sorted(arrivals, key=lambda a: (a.at_ms, a.job_id)), devices, scheduler)
    for now_ms in world.moments(until_ms):
        world.happen(now_ms)
    return list(world.jobs.values())


class _World:
    def __init__(self, arrivals: Sequence[Arrival], devices: Sequence[Device], scheduler: Scheduler) -> None:
        self.jobs = {arrival.job_id: Ran(arrival) for arrival in arrivals}
        self.slots = [SimSlot(index, device) for index, device in enumerate(devices)]
        self._scheduler = scheduler
        self._coming = list(reversed(self.jobs.values()))
        self._moments: list[tuple[int, int, str]] = []  # time, slot, what
        self._withdrawn: set[str] = set()

    def moments(self, until_ms: int | None) -> Iterator[int]:
        """Yield the times at which something happens, one after another."""
        now_ms = -1
        while True:
            next_ms = self._next_ms(now_ms)
            if next_ms is None or (until_ms is not None and next_ms > until_ms):
                return
            now_ms = next_ms
            yield now_ms

    def _next_ms(self, now_ms: int) -> int | None:
        nexts = [self._coming[-1].arrival.at_ms] if self._coming else []
        nexts += [self._moments[0][0]] if self._moments else []
        wake_ms = self._scheduler.wakes_at_ms(self.slots, now_ms)
        if wake_ms is not None and (nexts or wake_ms > now_ms):
            nexts.append(max(wake_ms, now_ms + 1))
        return min(nexts, default=None)

    def happen(self, now_ms: int) -> None:
        """Let everything of this moment happen, then let the scheduler decide until it rests."""
        while self._moments and self._moments[0][0] <= now_ms:
            _, index, what = heapq.heappop(self._moments)
            self._finish(self.slots[index], what, now_ms)
        while self._coming and self._coming[-1].arrival.at_ms <= now_ms:
            self._scheduler.submit(self._coming.pop().arrival, now_ms)
        self._start(now_ms)
        for _ in range(MOST_TURNS):
            offers, taken_back, expired, again = self._scheduler.decide(self.slots, now_ms)
            for job_id in expired:
                self.jobs[job_id].expired = True
            self._take_back(set(taken_back))
            for offer, job_id, index in offers:
                self.slots[index].deck.append((offer, self.jobs[job_id]))
            self._start(now_ms)
            if not (offers or taken_back or again):
                return
        raise RuntimeError(f"the scheduler does not come to rest at {now_ms} ms")

    def _finish(self, slot: SimSlot, what: str, now_ms: int) -> None:
        job = slot.running
        assert job is not None
        if what == "loaded":
            self._scheduler.loaded(job, slot, now_ms)
            return
        assert job.start_ms is not None
        job.end_ms, slot.running = now_ms, None
        self._scheduler.ended(job, slot, now_ms - job.start_ms, now_ms)

    def _take_back(self, offers: set[str]) -> None:
        for slot in self.slots if offers else ():
            slot.deck = type(slot.deck)(entry for entry in slot.deck if entry[0] not in offers)

    def _start(self, now_ms: int) -> None:
        for slot in self.slots:
            while slot.running is None and slot.deck:
                offer, job = slot.deck.popleft()
                if job.start_ms is None and not job.expired:  # else the first accepted start has won elsewhere
                    self._begin(slot, offer, job, now_ms)

    def _begin(self, slot: SimSlot, offer: str, job: Ran, now_ms: int) -> None:
        warm = slot.admit(job)
        job.start_ms, job.slot, slot.running = now_ms, slot.index, job
        job.load_ms = 0 if warm else job.arrival.load_ms
        slot.free_at_ms = now_ms + job.load_ms + job.arrival.run_ms
        self._scheduler.started(job, offer, slot, now_ms)
        if job.load_ms:
            heapq.heappush(self._moments, (now_ms + job.load_ms, slot.index, "loaded"))
        heapq.heappush(self._moments, (slot.free_at_ms, slot.index, "over"))

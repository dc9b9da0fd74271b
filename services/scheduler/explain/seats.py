"""The slots of a pool as a waiting job sees them: which could ever hold it, and when each should be free. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contracts.questions import Spot
from services.scheduler.fold.lines import JobClass
from services.scheduler.fold.placement import Place, places
from services.scheduler.fold.records import Job, Slot, Worker

MOST_SPOTS = 8


@dataclass(frozen=True, slots=True)
class Seat:
    """A place with the time until what runs there and what lies on its deck are over."""

    place: Place
    free_in_ms: int

    def spot(self, model: str) -> Spot:
        """Return what a caller is shown of it."""
        slot = self.place.slot
        warm = self.place.is_warm(model)
        return Spot(self.place.worker.id, slot.index, slot.device, slot.kind, warm, self.free_in_ms)


class Seats:
    """All slots that take part. A set of them is a number with one bit for each: that is cheap to compare."""

    def __init__(self, workers: Iterable[Worker], jobs: Mapping[str, Job], now_ms: int) -> None:
        self.all = [Seat(place, _free_in_ms(place.slot, jobs, now_ms)) for place in places(workers)]
        self._holding: dict[tuple[str, int], int] = {}

    def holding(self, job_class: JobClass) -> int:
        """Return the set of slots that could ever hold a job of this class."""
        key = (job_class.model, job_class.bytes)
        if key not in self._holding:
            self._holding[key] = sum(1 << i for i, seat in enumerate(self.all) if seat.place.could_hold(job_class))
        return self._holding[key]

    def of(self, chosen: int) -> list[Seat]:
        """Return the slots of a set."""
        return [seat for i, seat in enumerate(self.all) if chosen >> i & 1]

    def spots(self, model: str, chosen: int) -> tuple[Spot, ...]:
        """Return where a job of the model would run, free and warm ones first."""
        spots = [seat.spot(model) for seat in self.of(chosen)]
        spots.sort(key=lambda spot: (spot.free_in_ms, not spot.warm, spot.worker_id, spot.slot))
        return tuple(spots[:MOST_SPOTS])


def share(chosen: int, of_rival: int) -> float:
    """Return how much of a rival's work meets a job that wants the slots `chosen`; all of it when that has none.

    >>> share(0b0011, 0b0110), share(0b0011, 0b1100), share(0, 0b1)
    (0.5, 0.0, 1.0)
    """
    if not chosen:
        return 1.0
    return (chosen & of_rival).bit_count() / of_rival.bit_count() if of_rival else 0.0


def _free_in_ms(slot: Slot, jobs: Mapping[str, Job], now_ms: int) -> int:
    running_ms = max(0, slot.free_at_ms - now_ms) if slot.running is not None else 0
    return running_ms + _deck_ms(slot, jobs)


def _deck_ms(slot: Slot, jobs: Mapping[str, Job]) -> int:
    for offer_id, job_id in slot.deck_offers.items():
        job = jobs.get(job_id)
        offer = None if job is None else job.offers.get(offer_id)
        if offer is not None:
            return offer.est_ms  # the members of a batch run together
    return 0

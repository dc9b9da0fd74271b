"""Which slot may hold a job now. Idle slots first, then decks of busy ones, the one that is free soonest first.

Promises: a slot gets one offer at most; per slot max(running, on deck) stays within the slot's bytes, and their sum
within the device's budget; a model goes only to workers that list it. A `Room` is the scratch of one choice.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.scheduler.fold.records import Slot, Worker

Class = tuple[str, int]  # model and bytes: jobs of one class fit the same slots


@dataclass(frozen=True, slots=True)
class Place:
    """A slot of an open worker, as a choice sees it."""

    worker: Worker
    slot: Slot

    @property
    def rank(self) -> tuple[int, int, str, int]:
        """Idle first, then by when it should be free; ids break ties, so that the order never depends on chance."""
        slot = self.slot
        return (int(slot.running is not None), slot.free_at_ms, self.worker.id, slot.index)

    def can_hold(self, job_class: Class, added_bytes: int = 0) -> bool:
        """Whether a job of this class may lie on the deck, in place of what lies there.

        Args:
            added_bytes: what the present choice has given to the other slots of the device.
        """
        slot, (model, job_bytes) = self.slot, job_class
        if not self.worker.serves(model):
            return False
        if not slot.bytes:
            return True
        neighbours = [
            other for other in self.worker.slots.values() if other.device == slot.device and other is not slot
        ]
        held_bytes = sum(other.held_bytes for other in neighbours) + added_bytes
        budget_bytes = max([slot.bytes, *(other.bytes for other in neighbours)])
        return job_bytes <= slot.bytes and held_bytes + max(slot.running_bytes, job_bytes) <= budget_bytes


def places(workers: Iterable[Worker]) -> list[Place]:
    """Return the slots that take part in choice, best first."""
    taking = (worker for worker in workers if not worker.draining)
    found = [
        Place(worker, slot) for worker in taking for slot in worker.slots.values() if slot.listed and not slot.aside
    ]
    return sorted(found, key=lambda place: place.rank)


class Room:
    """The free decks of one choice; shrinks as jobs are placed."""

    def __init__(self, found: Iterable[Place]) -> None:
        self._free = [place for place in found if place.slot.deck is None]
        self._added: dict[tuple[str, str], int] = {}  # bytes that this choice adds to a device
        self._fits: dict[Class, Place | None] = {}

    def __bool__(self) -> bool:
        return bool(self._free)

    def best(self, job_class: Class) -> Place | None:
        """Return the place for a job of this class, None when there is none."""
        if job_class not in self._fits:
            self._fits[job_class] = next((place for place in self._free if self._holds(place, job_class)), None)
        return self._fits[job_class]

    def take(self, place: Place, job_bytes: int) -> None:
        """Fill the place's deck."""
        slot = place.slot
        device = (place.worker.id, slot.device)
        self._added[device] = self._added.get(device, 0) + max(slot.running_bytes, job_bytes) - slot.running_bytes
        self._free.remove(place)
        self._fits = {known: at for known, at in self._fits.items() if at and at.slot.device != slot.device}

    def _holds(self, place: Place, job_class: Class) -> bool:
        return place.can_hold(job_class, self._added.get((place.worker.id, place.slot.device), 0))

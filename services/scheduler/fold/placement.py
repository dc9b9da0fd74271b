"""Which slot may hold a job now, which could ever, and which should be waited for. Pure.

Promises: a slot gets one offer at most; per slot max(running, on deck) stays within the slot's bytes, and their sum
within the device's budget; a job that nobody has measured, or is to be alone, shares its device with none; a model goes
only to workers that list it. Idle models are in nobody's way: they leave when room is needed. A `Room` is the scratch
of a choice.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from services.scheduler.fold.lines import NEVER_MS, JobClass
from services.scheduler.fold.records import Slot, Worker

_ON_DECK_MS = 600_000  # what lies on a deck delays a drain by an unknown time
Device = tuple[str, str]  # worker, device
Pinned = tuple[tuple[str, int], ...]  # models and what they keep


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

    @property
    def device(self) -> Device:
        """What shares its memory with the slot."""
        return (self.worker.id, self.slot.device)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs there."""
        return self.slot.running is None

    def is_warm(self, model: str) -> bool:
        """Whether the model is loaded there, or is once what runs there is over."""
        return model in self.slot.resident

    def spares_load(self, job_class: JobClass) -> bool:
        """Whether a job of this class would find its model there; one that is to be alone loads it anew."""
        return not job_class.alone and self.is_warm(job_class.model)

    def bytes_for(self, job_class: JobClass) -> int:
        """Return what a job of this class is given there; 0: nobody knows what it needs."""
        if not job_class.alone:
            return job_class.bytes
        return self.slot.bytes + own_bytes(self.slot.pinned, job_class.model)

    def could_hold(self, job_class: JobClass) -> bool:
        """Whether the slot could hold a job of this class if nothing else were on the device."""
        return could_hold(self.worker.models, self.slot.bytes, self.slot.pinned, job_class)

    def members_of(self, job_class: JobClass) -> int:
        """Return how many jobs of this class an empty slot could take in one pass."""
        if not self.could_hold(job_class):
            return 0
        room = self.slot.bytes // job_class.bytes if self.slot.bytes and job_class.bytes else job_class.max_batch
        return min(room, job_class.max_batch)

    def can_hold(self, job_class: JobClass, added_bytes: int = 0) -> bool:
        """Whether a job of this class may lie on the deck, in place of what lies there.

        Args:
            added_bytes: what the present choice has given to the other slots of the device.
        """
        slot = self.slot
        if not self.could_hold(job_class):
            return False
        if not slot.bytes:
            return True
        neighbours = [other for other in _slots_of(self) if other is not slot]
        held_bytes = sum(other.held_bytes for other in neighbours) + added_bytes
        if any(other.is_whole for other in neighbours) or (held_bytes and not job_class.claim):
            return False  # also where a pin would leave room for both: who is alone loads its model anew
        budget_bytes = _budget(self) + own_bytes(slot.pinned, job_class.model)
        return held_bytes + max(slot.running_bytes, job_class.claim or slot.bytes) <= budget_bytes


def could_hold(models: Collection[str], slot_bytes: int, pinned: Pinned, job_class: JobClass) -> bool:
    """Whether an empty slot of so many bytes, of a worker that lists these models, could hold a job of this class."""
    model = job_class.model
    serves = model in models or model.partition("@")[0] in models
    return serves and (not slot_bytes or job_class.bytes <= slot_bytes + own_bytes(pinned, model))


def own_bytes(pinned: Pinned, model: str) -> int:
    """Return what the model keeps on a device for its own jobs."""
    return next((size for name, size in pinned if name == model), 0)


def opens_at_ms(slot: Slot, deck_lead_ms: int) -> int:
    """Return from when on the deck is filled; 0 where nothing runs, or nobody knows how long it will.

    A job that is bound early cannot go elsewhere. Behind a short job the gap it saves is worth that, once the slot is
    nearly free; behind a long one, whose end is known less well, nothing is bound before the slot is free.
    """
    if slot.running is None or slot.guessed:
        return 0
    return NEVER_MS if slot.est_ms > deck_lead_ms else slot.free_at_ms - deck_lead_ms


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
        self.all = list(found)
        self._free = {(place.worker.id, place.slot.index): place for place in self.all if place.slot.deck is None}
        self._added: dict[Device, int] = {}  # bytes that this choice adds to a device
        self._warm: dict[str, list[Place]] | None = None

    def free(self) -> list[Place]:
        """Return the free places, best first."""
        return list(self._free.values())

    def is_free(self, place: Place) -> bool:
        """Whether nothing was given to the place yet."""
        return (place.worker.id, place.slot.index) in self._free

    def fits(self, place: Place, job_class: JobClass) -> bool:
        """Whether the place may be given a job of this class now."""
        return place.can_hold(job_class, self._added.get(place.device, 0))

    def warm(self, job_class: JobClass, *, idle: bool) -> Place | None:
        """Return the best free place, idle or busy, that has the model and room for the job."""
        if job_class.alone:
            return None
        if self._warm is None:
            self._warm = {}
            for place in self._free.values():
                for model in place.slot.resident:
                    self._warm.setdefault(model, []).append(place)
        for place in self._warm.get(job_class.model, ()):
            if place.is_idle is idle and self.is_free(place) and self.fits(place, job_class):
                return place
        return None

    def idle(self, job_class: JobClass) -> Place | None:
        """Return the best idle place with room for the job, where the model is loaded if there is one."""
        warm = self.warm(job_class, idle=True)
        if warm is not None:
            return warm
        return next((place for place in self._free.values() if place.is_idle and self.fits(place, job_class)), None)

    def take(self, place: Place, job_class: JobClass) -> None:
        """Fill the place's deck."""
        self._added[place.device] = self._added.get(place.device, 0) + _added_bytes(place, job_class, job_class.claim)
        del self._free[place.worker.id, place.slot.index]

    def may_join(self, place: Place, job_class: JobClass, members: int) -> bool:
        """Whether one more job of the class may share the place with the `members` that were given it."""
        together = job_class._replace(bytes=(members + 1) * job_class.bytes)
        beside_bytes = self._added.get(place.device, 0) - _added_bytes(place, job_class, members * job_class.bytes)
        return place.can_hold(together, beside_bytes)

    def join(self, place: Place, job_class: JobClass, members: int) -> None:
        """Let one more job lie on the deck of the place; each counts with all its bytes."""
        grown_bytes = _added_bytes(place, job_class, (members + 1) * job_class.bytes)
        self._added[place.device] += grown_bytes - _added_bytes(place, job_class, members * job_class.bytes)

    def drained_for(self, job_class: JobClass) -> Device | None:
        """Return the device that would be the first to have room for the job if it were given nothing new."""
        ready: dict[Device, int] = {}
        for place in self.all:
            if place.could_hold(job_class) and place.device not in ready:
                ready[place.device] = _ready_at_ms(place, job_class)
        return min(ready, key=lambda device: (ready[device], device), default=None)


def _added_bytes(place: Place, job_class: JobClass, deck_bytes: int) -> int:
    whole_bytes = place.slot.bytes + own_bytes(place.slot.pinned, job_class.model)
    return max(place.slot.running_bytes, deck_bytes or whole_bytes) - place.slot.running_bytes


def _slots_of(place: Place) -> list[Slot]:
    return [slot for slot in place.worker.slots.values() if slot.device == place.slot.device]


def _budget(place: Place) -> int:
    return max(slot.bytes for slot in _slots_of(place))


def _ready_at_ms(place: Place, job_class: JobClass) -> int:
    """Return when enough of what the device holds should be gone."""
    slots = _slots_of(place)
    budget_bytes = _budget(place)
    held_bytes, room_bytes = sum(slot.held_bytes for slot in slots), budget_bytes - (job_class.claim or budget_bytes)
    at_ms = 0
    for free_at_ms, slot_bytes in sorted((_empty_at_ms(slot), slot.held_bytes) for slot in slots):
        if held_bytes <= room_bytes:
            break
        held_bytes -= slot_bytes
        at_ms = free_at_ms
    return at_ms


def _empty_at_ms(slot: Slot) -> int:
    return slot.free_at_ms + (_ON_DECK_MS if slot.deck is not None else 0)

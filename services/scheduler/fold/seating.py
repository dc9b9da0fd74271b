"""Which job lies on which deck and runs on which slot: both ends of every offer and of every attempt. Pure.

Promises: a deck is filled as long as an offer for it stands or its worker still holds one that was taken elsewhere; a
slot is free when the time of all that runs on it has passed.
"""

from collections.abc import Collection

from services.scheduler.fold.eligible import class_of
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.placement import Place
from services.scheduler.fold.records import Job, Offer, Slot, Worker


class Seating:
    """See the module."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self.workers: dict[str, Worker] = {}
        self.on_worker: dict[str, set[str]] = {}  # worker, also one that is gone -> jobs with an offer or attempt there
        self.stranded: dict[str, tuple[str, str, int, int]] = {}  # offer of a job that started elsewhere -> see strand
        self.holding: dict[str, int] = {}  # job that lies on a deck for its model -> until when it lies on no other

    def slot(self, worker_id: str | None, index: int | None) -> Slot | None:
        """Return a slot of a known worker."""
        worker = self.workers.get(worker_id or "")
        return None if worker is None or index is None else worker.slots.get(index)

    def place(self, worker_id: str, index: int) -> Place | None:
        """Return a slot of a known worker as a choice sees it."""
        worker, slot = self.workers.get(worker_id), self.slot(worker_id, index)
        return None if worker is None or slot is None else Place(worker, slot)

    def put_on_deck(self, job: Job, offer: Offer) -> None:
        """Let an offer of the job stand."""
        job.offers[offer.id] = offer
        if offer.hold_until_ms is not None:
            self.holding[job.id] = offer.hold_until_ms
        self.on_worker.setdefault(offer.worker_id, set()).add(job.id)
        slot = self.slot(offer.worker_id, offer.slot)
        if slot is not None:
            slot.lay(offer.id, job.id, offer.bytes)

    def take_off_deck(self, job: Job, offer_id: str) -> None:
        """End an offer of the job, if it stands."""
        offer = job.offers.pop(offer_id, None)
        if offer is None:
            return
        if offer.hold_until_ms is not None:
            self.holding.pop(job.id, None)
        slot = self.slot(offer.worker_id, offer.slot)
        if slot is not None:
            slot.lift(offer_id, offer.bytes)
        self._unlink(job, offer.worker_id)

    def strand(self, job: Job, offer: Offer) -> None:
        """End an offer of a job that started elsewhere; its deck stays filled until the leader has freed it."""
        slot = self.slot(offer.worker_id, offer.slot)
        filled = slot is not None and offer.id in slot.deck_offers
        self.take_off_deck(job, offer.id)
        if slot is not None and filled:
            slot.lay(offer.id, job.id, offer.bytes)
            self.stranded[offer.id] = (job.id, offer.worker_id, offer.slot, offer.bytes)

    def free_deck(self, offer_id: str) -> None:
        """Empty the deck of a stranded offer."""
        _, worker_id, index, offer_bytes = self.stranded.pop(offer_id, ("", "", 0, 0))
        slot = self.slot(worker_id, index)
        if slot is not None:
            slot.lift(offer_id, offer_bytes)

    def clear_decks(self, job: Job) -> None:
        """End all offers of the job."""
        for offer_id in list(job.offers):
            self.take_off_deck(job, offer_id)

    def put_on_device(self, job: Job, worker_id: str, index: int, now_ms: int) -> None:
        """Begin an attempt on a slot."""
        job.worker_id, job.slot, job.on_device = worker_id, index, True
        job.started_ms = job.runs_from_ms = now_ms
        self.on_worker.setdefault(worker_id, set()).add(job.id)
        slot = self.slot(worker_id, index)
        if slot is not None:
            # the members of a batch share the device: it is free when the time of all of them has passed
            begins_ms = slot.free_at_ms if slot.running_jobs else now_ms
            slot.running_jobs[job.id] = class_of(job).claim
            slot.free_at_ms = begins_ms + job.charged_ms
            slot.est_ms = slot.free_at_ms - now_ms
            slot.guessed = self._estimates.is_empty

    def expect_resident(self, job: Job, warm: bool) -> None:
        """Note that the job's model is, or will be, in memory where its attempt is.

        Of a model that has to be loaded nobody knows yet which others leave for it: none is counted on until the worker
        has said so, else what follows would be chosen for a model that is about to go.
        """
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None and not (warm and job.model in slot.resident):
            slot.resident = (job.model,)

    def note_loaded(self, job: Job, evicted: Collection[str] | None) -> None:
        """Note that the job's model is in memory now, and who left for it; None: all others."""
        slot, worker = self.slot(job.worker_id, job.slot), self.workers.get(job.worker_id or "")
        if slot is None or worker is None:
            return
        if evicted is None:
            slot.resident = (job.model,)
            return
        for beside in worker.slots.values():
            if beside.device == slot.device:
                stay = {model for model in beside.resident if model not in evicted}
                beside.resident = tuple(sorted({*stay, job.model}))

    def note_gone(self, job: Job) -> None:
        """Note that the child of the job's attempt has ended, and its model with it."""
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None:
            slot.resident = tuple(model for model in slot.resident if model != job.model)

    def take_off_device(self, job: Job) -> None:
        """End the device part of the attempt; the worker still holds the attempt."""
        job.on_device = False
        slot = self.slot(job.worker_id, job.slot)
        if slot is not None and slot.running_jobs.pop(job.id, None) is not None and not slot.running_jobs:
            slot.free_at_ms = slot.est_ms = 0

    def leave_worker(self, job: Job) -> None:
        """End the attempt."""
        self.take_off_device(job)
        worker_id, job.worker_id, job.slot = job.worker_id, None, None
        if worker_id is not None:
            self._unlink(job, worker_id)

    def _unlink(self, job: Job, worker_id: str) -> None:
        if job.worker_id == worker_id or any(offer.worker_id == worker_id for offer in job.offers.values()):
            return
        held = self.on_worker.get(worker_id, set())
        held.discard(job.id)
        if not held:
            self.on_worker.pop(worker_id, None)

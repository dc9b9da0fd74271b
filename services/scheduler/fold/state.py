"""The state of one pool: every entry of its log folded in order, by leader and standby alike.

Promises: `apply` is total (unknown types and entries that cannot be read only move the position), depends on nothing
but the entries, and is the only thing that changes the state for good.
"""

from collections.abc import Iterator, Sequence

from contracts.errors import Corrupt
from contracts.wire import Entry
from services.scheduler.fold.books import Books
from services.scheduler.fold.choices import Choice, Held, OnDeck, Withdrawal
from services.scheduler.fold.eligible import class_of
from services.scheduler.fold.job_folds import JOB_FOLDS
from services.scheduler.fold.lines import NEVER_MS, JobClass
from services.scheduler.fold.placement import Place, opens_at_ms, places
from services.scheduler.fold.records import Job
from services.scheduler.fold.timers import Clock
from services.scheduler.fold.worker_folds import WORKER_FOLDS

_FOLDS = {**JOB_FOLDS, **WORKER_FOLDS}


class PoolState(Books):
    """The books with the two things done to them: fold an entry, ask what follows."""

    def apply(self, entry: Entry) -> None:
        """Fold one entry."""
        about = self.jobs.get(entry.subject) or self.workers.get(entry.subject)
        if about is not None:
            about.last = entry.position
        fold = _FOLDS.get(entry.type)
        if fold is not None:
            try:
                event = entry.event()
            except Corrupt:  # every fold skips it alike
                event = None
            if event is not None:
                fold(self, entry, event)
        self.skip(entry.position)

    def skip(self, position: str) -> None:
        """Pass an entry that cannot be read."""
        self.position = position
        self.entries_read += 1

    def choose(self, now_ms: int, limit: int) -> tuple[list[Withdrawal], list[Choice]]:
        """Ask the policy what to take back and what to offer now. Changes nothing."""
        if self.paused or (not self.policy.waiting_count and not self.seating.holding):
            return [], []
        found = places(self.workers.values())
        return self.policy.choose(found, list(self._decks(found)), list(self._held(now_ms)), now_ms, limit)

    def next_deck_ms(self, now_ms: int) -> int | None:
        """Return when the next deck may be filled or the next hold is over; None while nothing waits for that."""
        if self.paused or (not self.policy.waiting_count and not self.seating.holding):
            return None
        lead_ms = self.policy.knobs.deck_lead_ms
        at_ms = list(self.seating.holding.values())
        for worker in self.workers.values():
            at_ms += [opens_at_ms(slot, lead_ms) for slot in worker.slots.values() if slot.deck is None]
        return min((each_ms for each_ms in at_ms if now_ms < each_ms < NEVER_MS), default=None)

    def paused_offers(self) -> Iterator[tuple[str, str, str, int]]:
        """Give the offers (job, offer, worker, slot) of what is paused."""
        if not self.paused and not self.paused_models and not self.paused_tenants:
            return
        for worker in self.workers.values():
            for slot in worker.slots.values():
                for offer_id, job_id in slot.deck_offers.items():
                    job = self.jobs.get(job_id)
                    if job is not None and offer_id in job.offers and self.is_paused(job):
                        yield job_id, offer_id, worker.id, slot.index

    @property
    def exhausted(self) -> frozenset[str]:
        """Tenants that have used their device time of the day."""
        return frozenset(tenant_id for tenant_id in self.budgeted if self.is_exhausted(tenant_id))

    def wanted_tokens(self) -> dict[str, int]:
        """Return how many tokens of external limits could be used now."""
        if self.paused or not self.limits.waiting:
            return {}
        idle = [place for place in places(self.workers.values()) if place.is_idle and place.slot.deck is None]

        def places_for(job_class: JobClass) -> int:
            if self.policy.boards.is_paused(job_class.model):
                return 0
            return sum(place.members_of(job_class) for place in idle)

        return self.limits.wanted(places_for)

    def due(self, clock: Clock, now_ms: int, limit: int) -> list[Job]:
        """Return up to `limit` jobs whose clock has run out, earliest first."""
        return self.timers.due(clock, now_ms, self.jobs.get, limit)

    def next_due_ms(self, clock: Clock) -> int | None:
        """Return when the next job is due by this clock."""
        return self.timers.next_ms(clock, self.jobs.get)

    @property
    def aside_count(self) -> int:
        """How many jobs and slots are out of choice after a mismatch."""
        slots = sum(slot.aside for worker in self.workers.values() for slot in worker.slots.values())
        return len(self.aside) + slots

    def oldest_kept(self) -> str | None:
        """Return the first position of the oldest job that is not forgotten."""
        return self.by_age[0][0] if self.by_age else None

    def _held(self, now_ms: int) -> Iterator[Held]:
        for until_ms, job_id in sorted((until_ms, job_id) for job_id, until_ms in self.seating.holding.items()):
            job = self.jobs[job_id]
            if until_ms <= now_ms and len(job.offers) == 1 and not job.cancel_requested and not job.aside:
                yield Held(job.id, class_of(job), until_ms, job.queued_ms)

    def _decks(self, found: Sequence[Place]) -> Iterator[OnDeck]:
        for place in found:
            job = self.jobs.get(place.slot.deck or "")
            # an idle slot is starting what lies on its deck at this very moment
            # a batch is not taken apart: what would be withdrawn with it is mostly somebody else's
            is_batch = len(place.slot.deck_offers) > 1
            is_running = place.slot.running is not None
            if job is not None and is_running and not is_batch and place.slot.deck_offer in job.offers:
                yield OnDeck(place, job.id, place.slot.deck_offer, job.tenant_id, job.band)

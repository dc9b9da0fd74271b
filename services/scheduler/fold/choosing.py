"""One round of choosing on the queues themselves, with a note of everything that has to be put back. Pure.

What a choice takes out of a line and adds to a virtual time is undone before anybody else looks, so that the state
changes for good only when entries are read back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.ledger import Ledger
from services.scheduler.fold.lines import Tenant, Waiting
from services.scheduler.fold.placement import Class, Place, Room
from services.scheduler.fold.records import PRESSING


@dataclass(frozen=True, slots=True)
class Choice:
    """Offer this job to this slot. `anchor`: the tenant that was furthest behind."""

    job_id: str
    worker_id: str
    slot: int
    device: str
    bytes: int
    est_ms: int
    wait_ms: int
    anchor: str
    why: str


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Take the offer of `job_id` back from this deck: `better_job_id` shall have the room, in a later turn."""

    job_id: str
    offer_id: str
    worker_id: str
    slot: int
    better_job_id: str


@dataclass(frozen=True, slots=True)
class OnDeck:
    """What lies on the deck of a place, as far as overtaking needs to know."""

    place: Place
    job_id: str
    offer_id: str
    tenant_id: str
    band: int


class Scratch:
    """Choosing on the queues themselves, with a note of everything that has to be put back."""

    def __init__(self, ledger: Ledger, estimates: Estimates, now_ms: int) -> None:
        self._ledger, self._estimates, self._now_ms = ledger, estimates, now_ms
        self._removed: list[Waiting] = []
        self._before: dict[str, int] = {}  # virtual times of the tenants that were charged

    def next_choice(self, room: Room) -> Choice | None:
        """Place the next job: of the tenant furthest behind among those that have one that fits."""
        open_classes = {
            job_class: place for job_class in self._classes() if (place := room.best(job_class)) is not None
        }
        tenant = self._furthest_behind(open_classes)
        if tenant is None:
            return None
        job = self._best_of(tenant, open_classes)
        assert job is not None
        place = open_classes[job.job_class]
        est_ms = self._estimates.of(job.job_class[0])
        self._before.setdefault(tenant.id, tenant.v)
        self._take(job)
        tenant.v += self._ledger.cost(tenant.id, est_ms)
        room.take(place, job.job_class[1])
        why = "idle" if place.slot.running is None else "deck"
        return Choice(
            job.job_id, place.worker.id, place.slot.index, place.slot.device, job.job_class[1], est_ms,
            max(0, self._now_ms - job.since_ms), tenant.id, why,
        )  # fmt: skip

    def overtaking(self, decks: Sequence[OnDeck]) -> list[Withdrawal]:
        """Find decks that hold a job of a tenant which has a more pressing one waiting that fits there."""
        withdrawals: list[Withdrawal] = []
        for deck in decks:
            tenant = self._ledger.tenants.get(deck.tenant_id)
            fitting = {c: deck.place for c in tenant.lines if deck.place.can_hold(c)} if tenant is not None else {}
            better = self._best_of(tenant, fitting) if tenant is not None else None
            if better is not None and better.band <= PRESSING and better.band < deck.band:
                self._take(better)
                slot = deck.place.slot
                withdrawals.append(
                    Withdrawal(deck.job_id, deck.offer_id, deck.place.worker.id, slot.index, better.job_id)
                )
        return withdrawals

    def undo(self) -> int:
        """Put everything back; returns how many entries that took."""
        tenants = self._ledger.tenants
        for tenant_id, v in self._before.items():
            tenants[tenant_id].v = v
            self._ledger.boards.note_all(tenants[tenant_id])
        for job in self._removed:
            tenants[job.tenant_id].lines[job.job_class].add(job)
            self._ledger.boards.note(tenants[job.tenant_id], job.job_class)
        return len(self._removed)

    def _classes(self) -> list[Class]:
        return self._ledger.boards.classes()

    def _furthest_behind(self, open_classes: dict[Class, Place]) -> Tenant | None:
        best: Tenant | None = None
        for job_class in open_classes:
            tenant = self._first(job_class)
            if tenant is not None and (best is None or (tenant.v, tenant.id) < (best.v, best.id)):
                best = tenant
        return best

    def _first(self, job_class: Class) -> Tenant | None:
        """The first tenant on the board whose line holds a job that may still start."""
        while (tenant := self._ledger.boards.first(job_class, self._ledger.tenants)) is not None:
            if tenant.lines[job_class].head(self._now_ms, self._removed) is not None:
                return tenant
        return None

    def _best_of(self, tenant: Tenant, open_classes: dict[Class, Place]) -> Waiting | None:
        best: Waiting | None = None
        for job_class, line in tenant.lines.items():
            job = line.head(self._now_ms, self._removed) if job_class in open_classes else None
            if job is not None and (best is None or job.rank < best.rank):
                best = job
        return best

    def _take(self, job: Waiting) -> None:
        del self._ledger.tenants[job.tenant_id].lines[job.job_class].jobs[job.job_id]
        self._removed.append(job)

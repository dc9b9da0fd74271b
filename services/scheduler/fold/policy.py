"""Start-time fair queueing over tenants by device time; priority words are bands inside a tenant. Pure, integers only.

Virtual time of a tenant is the device time it was charged, divided by its weight. The tenant that is furthest behind is
served next; the estimate is charged at the offer, trued up at the end, given back when an offer comes to nothing. A
tenant that begins to wait is lifted to the pool's virtual time: idling earns no credit, and debts last until the pool
is empty. No tenant gets ahead of another by calling its jobs urgent.

`choose` changes nothing: what it does to the queues while choosing is undone before it returns, and comes true when the
entries are read back. The same state and `now_ms` give the same decisions everywhere.
Bounded lead, floors, caps and holds are not here; they belong behind the same calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.scheduler.fold.choosing import Choice, OnDeck, Scratch, Withdrawal
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.ledger import Ledger
from services.scheduler.fold.lines import Line, Tenant, Waiting
from services.scheduler.fold.placement import Place, Room
from services.scheduler.fold.records import PRESSING

NAME, VERSION = "sfq", 1
COMPACT_AFTER = 50_000  # undone choices leave entries behind on the boards


@dataclass(frozen=True, slots=True)
class Waits:
    """A job became eligible. `fresh`: it comes from outside (new, due, retried), not back from a deck."""

    job: Waiting
    fresh: bool


@dataclass(frozen=True, slots=True)
class Leaves:
    """A job is not eligible any more."""

    job: Waiting


@dataclass(frozen=True, slots=True)
class Charged:
    """A job got its first offer: the estimate counts from now on."""

    job_id: str
    tenant_id: str
    est_ms: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A charged job is done with the device after `device_ms`; None: nothing is to be charged."""

    job_id: str
    device_ms: int | None


@dataclass(frozen=True, slots=True)
class Weighed:
    """A tenant's weight from now on, in thousandths."""

    tenant_id: str
    weight_milli: int


PolicyEvent = Waits | Leaves | Charged | Settled | Weighed


class FairPolicy:
    """The waiting jobs and who is owed what."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._ledger = Ledger()
        self._pressing = 0  # waiting jobs that may overtake
        self._undone = 0

    @property
    def waiting_count(self) -> int:
        """How many jobs could be offered if there were room."""
        return self._ledger.waiting

    @property
    def weights(self) -> Mapping[str, int]:
        """Weights in thousandths that differ from a standard tenant's, or once did."""
        return self._ledger.weights

    def apply(self, event: PolicyEvent) -> None:
        """Fold one fact."""
        match event:
            case Waits(job, fresh):
                self._add(job, fresh)
            case Leaves(job):
                self._remove(job)
            case Charged(job_id, tenant_id, est_ms):
                self._ledger.charge(job_id, tenant_id, est_ms)
            case Settled(job_id, device_ms):
                self._ledger.settle(job_id, device_ms)
            case Weighed(tenant_id, weight_milli):
                self._ledger.weights[tenant_id] = max(1, weight_milli)

    def choose(
        self, found: Sequence[Place], decks: Sequence[OnDeck], now_ms: int, limit: int
    ) -> tuple[list[Withdrawal], list[Choice]]:
        """Return withdrawals and up to `limit` choices, best first; `found` are the places of the pool in order."""
        if not self._ledger.waiting:
            return [], []
        scratch = Scratch(self._ledger, self._estimates, now_ms)
        room = Room(found)
        choices: list[Choice] = []
        while room and len(choices) < limit and (choice := scratch.next_choice(room)) is not None:
            choices.append(choice)
        withdrawals = scratch.overtaking(decks) if self._pressing and len(choices) < limit else []
        self._undone += scratch.undo()
        if self._undone > COMPACT_AFTER:
            self._ledger.boards.compact(self._ledger.tenants)
            self._undone = 0
        return withdrawals, choices

    def snapshot(self) -> dict[str, object]:
        """Return what the waiting jobs themselves do not say: virtual times, weights, charges."""
        ledger = self._ledger
        return {
            "virtual": ledger.virtual,
            "ahead": ledger.ahead,
            "tenants": {tenant.id: tenant.v for tenant in ledger.tenants.values()},
            "weights": ledger.weights,
            "charges": ledger.charges,
        }

    def restore(self, data: dict[str, object], waiting: Sequence[Waiting]) -> None:
        """Take over a snapshot, with the jobs that were waiting in it."""
        ledger = self._ledger
        virtual, ahead, tenants, weights, charges = (
            data[name] for name in ("virtual", "ahead", "tenants", "weights", "charges")
        )
        assert isinstance(virtual, int)
        assert isinstance(tenants, dict)
        assert isinstance(weights, dict)
        assert isinstance(charges, dict)
        assert ahead is None or isinstance(ahead, str)
        ledger.virtual, ledger.ahead, ledger.weights = virtual, ahead, dict(weights)
        ledger.tenants = {tenant_id: Tenant(tenant_id, v) for tenant_id, v in tenants.items()}
        for job_id, (tenant_id, cost) in charges.items():
            ledger.charges[job_id] = (tenant_id, cost)
            ledger.tenant(tenant_id).charged += 1
        for job in waiting:
            self._add(job, fresh=False)
        ledger.note_idle()

    def _add(self, job: Waiting, fresh: bool) -> None:
        tenant = self._ledger.tenant(job.tenant_id)
        if fresh and not tenant.waiting:
            self._ledger.lift(tenant)
        tenant.waiting += 1
        self._ledger.waiting += 1
        self._pressing += job.band <= PRESSING
        tenant.lines.setdefault(job.job_class, Line()).add(job)
        self._ledger.boards.note(tenant, job.job_class)

    def _remove(self, job: Waiting) -> None:
        tenant = self._ledger.tenants[job.tenant_id]
        line = tenant.lines[job.job_class]
        del line.jobs[job.job_id]
        if not line.jobs:
            del tenant.lines[job.job_class]
        tenant.waiting -= 1
        self._ledger.waiting -= 1
        self._pressing -= job.band <= PRESSING
        self._ledger.rest(tenant)

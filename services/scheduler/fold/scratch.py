"""The scratch of one round of choosing, with a note of everything that has to be put back. Pure.

What a choice takes out of a lane and adds to a virtual time is undone before anybody else looks, so that the state
changes for good only when entries are read back. What frees room frees nothing here: any subset of a round's choices
keeps every cap and every budget.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from services.scheduler.fold.accounts import TIERS, Account, Tenant
from services.scheduler.fold.boards import Boards, Domain
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.inside import Heads, fair_job, pass_over, survey
from services.scheduler.fold.knobs import Knobs
from services.scheduler.fold.ledger import FLAT, Ledger
from services.scheduler.fold.lines import JobClass, View, Waiting
from services.scheduler.fold.placement import Device, Place, Room


@dataclass(slots=True)
class Fair:
    """The fair choice for one place: whose turn it is, in which phase, and with which job."""

    phase: int
    anchor: Tenant
    job: Waiting
    due: bool  # nothing of the anchor may overtake it
    found: dict[int, Heads]
    domains: tuple[Domain, ...]
    tiers: Collection[int]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a job was placed on the scratch, and for whom."""

    fair: Fair
    job: Waiting
    place: Place
    most_v: int  # virtual time up to which a tenant may share the pass


@dataclass(slots=True)
class _Before:
    tenant: Tenant
    user: Account
    tier_rho: list[int]
    charged: int
    skips: dict[int, int] | None
    values: tuple[int, int, int, int]
    mark: tuple[int, str]


@dataclass(slots=True)
class Scratch:
    """Choosing on the queues themselves, with a note of everything that has to be put back."""

    ledger: Ledger
    boards: Boards
    deadlines: Sequence[list[tuple[int, Waiting]]]  # of each tier, a heap
    estimates: Estimates
    knobs: Knobs
    view: View
    tokens: dict[str, int]
    room: Room
    now_ms: int
    _given: tuple[Fair, Tenant, Waiting, int] | None = None  # the last choice: not charged before somebody looks again
    _undo: list[_Before] = field(default_factory=list)
    draining: dict[Device, int] = field(default_factory=dict)  # -> virtual time up to which others may go there
    placed: Placed | None = None  # the last offer, if its model takes batches
    given: Counter[JobClass] = field(default_factory=Counter)  # jobs of each class that were taken in this round

    def fair(self, place: Place, *, flat: bool = False) -> Fair | None:
        """Return the fair choice among all that the place could ever hold; `flat`: as if no tier had a floor."""
        self.take_given()
        domains = self.open_domains(place)
        heads: dict[int, Tenant] = {}
        for tier in range(len(TIERS)):
            for domain in domains:
                tenant = self.boards.first(domain, tier, self.view) if domain.heaps[tier] else None
                if tenant is not None and (tier not in heads or tenant.mark < heads[tier].mark):
                    heads[tier] = tenant
        if not heads:
            return None
        phase = FLAT if flat else self.ledger.phases(heads)
        tiers = list(heads) if phase == FLAT else [phase]
        anchor = min((heads[tier] for tier in tiers), key=lambda tenant: tenant.mark)
        found = survey(anchor, domains, self.view)
        job, due = fair_job(anchor, found, self.knobs.bypass_ms)
        return Fair(phase, anchor, job, due, found, domains, tiers)

    def open_domains(self, place: Place) -> tuple[Domain, ...]:
        """Return the domains whose jobs the place could ever hold and that may draw on their resources now."""
        return tuple(domain for domain in self.boards.domains_at(place) if domain.is_open(self.tokens))

    def fair_there(self, placed: Placed) -> Fair:
        """Return the fair choice of a placed job as its place sees it now: it may be better than the one that asked."""
        self.take_given()
        fair, domains = placed.fair, self.open_domains(placed.place)
        tiers = range(len(TIERS)) if fair.phase == FLAT else fair.tiers
        return replace(fair, found=survey(fair.anchor, domains, self.view), domains=domains, tiers=tiers)

    def offer(self, fair: Fair, job: Waiting, place: Place, why: str, most_v: int | None = None) -> Choice:
        """Give the job a free place.

        Args:
            most_v: how far it was let go before the fair job, which holds for all that share its pass.
        """
        if job is fair.job and why == "warm":
            why, most_v = "idle" if place.is_idle else "deck", None
        self.placed = None
        if job.job_class.max_batch > 1:
            self.placed = Placed(fair, job, place, fair.anchor.v + self.knobs.lead if most_v is None else most_v)
        choice = self._give(fair, job, place, why, self.cost_ms(job.job_class, place))
        self.room.take(place, job.job_class)
        return choice

    def join(self, fair: Fair, job: Waiting, place: Place, members: int) -> Choice:
        """Let the job share the pass of the `members` that were given the place; the model is loaded for them."""
        job_class = job.job_class
        self.room.join(place, job_class, members)
        return self._give(fair, job, place, "batch", self.estimates.run_ms(job_class.model, job_class.bucket))

    def _give(self, fair: Fair, job: Waiting, place: Place, why: str, est_ms: int) -> Choice:
        self.take_given()
        self._given = (fair, self.ledger.tenants[job.tenant_id], job, est_ms)
        phase = "flat" if fair.phase == FLAT else f"reserved:{TIERS[fair.phase]}"
        return Choice(
            job.job_id, place.worker.id, place.slot.index, place.slot.device,
            place.bytes_for(job.job_class), est_ms,
            max(0, self.now_ms - job.since_ms), fair.anchor.id, why, phase,
            alone=job.job_class.alone,
        )  # fmt: skip

    def further(self, job_id: str, job_class: JobClass, since_ms: int, place: Place, why: str) -> Choice:
        self.room.take(place, job_class)
        return Choice(
            job_id, place.worker.id, place.slot.index, place.slot.device, place.bytes_for(job_class),
            self.cost_ms(job_class, place), max(0, self.now_ms - since_ms), "", why, alone=job_class.alone,
        )  # fmt: skip

    def take_given(self) -> None:
        """Charge the last choice on the scratch, and let its job count no more; before anything is read of the queues.

        Most rounds have one choice, after which nobody looks: they change nothing that would have to be put back.
        """
        if self._given is None:
            return
        (fair, tenant, job, est_ms), self._given = self._given, None
        found = fair.found if tenant is fair.anchor else survey(tenant, fair.domains, self.view)
        self._take(tenant, job, est_ms, fair.phase, found)

    def _take(self, tenant: Tenant, job: Waiting, est_ms: int, phase: int, found: dict[int, Heads]) -> None:
        user = tenant.users[job.user]
        ledger = self.ledger
        self._undo.append(
            _Before(
                tenant, user, [tier.rho for tier in ledger.tiers], ledger.charged, tenant.skips and dict(tenant.skips),
                (tenant.v, tenant.in_flight, user.v, user.in_flight), tenant.mark,
            )
        )  # fmt: skip
        pass_over(tenant, found, job, est_ms)
        ledger.add(ledger.price(tenant, job.user, est_ms, phase))
        tenant.in_flight += 1
        user.in_flight += 1
        for name, units in job.job_class.resources:
            self.tokens[name] = self.tokens.get(name, 0) - units
        self.view.taken.add(job.job_id)
        self.view.touched.add(tenant.id)
        self.given[job.job_class] += 1

    def undo(self) -> int:
        """Put everything back; returns how many entries that took."""
        for before in reversed(self._undo):
            tenant, user = before.tenant, before.user
            tenant.v, tenant.in_flight, user.v, user.in_flight = before.values
            tenant.mark, tenant.skips, self.ledger.charged = before.mark, before.skips, before.charged
            for tier, rho in zip(self.ledger.tiers, before.tier_rho, strict=True):
                tier.rho = rho
        count = self.view.put_back()
        users = {(before.tenant.id, before.user.id): before for before in self._undo}
        for before in users.values():
            for shelf in before.tenant.shelves.values():
                for lane in shelf.lanes:
                    lane.note(before.user, self.view)
        for tenant_id in self.view.touched:
            tenant = self.ledger.tenants[tenant_id]
            if tenant.eligible:
                self.boards.note_all(tenant)
        self._undo, self.view.touched = [], set()
        return count

    def may_hold(self, place: Place, job_class: JobClass) -> bool:
        return (place.is_idle or not job_class.resources) and self.room.fits(place, job_class)

    def cost_ms(self, job_class: JobClass, place: Place) -> int:
        model = job_class.model
        load_ms = 0 if place.spares_load(job_class) else self.estimates.load_ms(model)
        return self.estimates.run_ms(model, job_class.bucket) + load_ms

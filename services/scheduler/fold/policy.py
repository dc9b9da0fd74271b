"""Bounded-lead fair queueing over tenants by device time, with a floor for each tier. Pure, integers only.

Virtual time of a tenant is the device time it was charged, divided by its weight. The tenant that is furthest behind
(the anchor) is the fair choice; while a tier is owed its floor, only that tier's tenants are asked. A preference (its
model is loaded there, its deadline is near, it fits while the fair job does not) may pick another tenant only if that
one leads the anchor by no more than the lead. Inside a tenant, see `inside`. The estimate is charged at the first
offer, trued up at the end, given back when an offer comes to nothing. A tenant that begins to wait, or may run again,
is lifted to where its tier and the pool are: idling earns no credit, and debts last until the pool is empty.

`choose` changes nothing: what it does to the queues while choosing is undone before it returns, and comes true when the
entries are read back. The same state and `now_ms` give the same decisions everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappush

from contracts.events import PolicyFacts
from services.scheduler.fold import facts
from services.scheduler.fold.accounts import NO_CAP, TIERS, Account, Rule, Tenant
from services.scheduler.fold.boards import Boards, Shelf, may_run
from services.scheduler.fold.choices import Choice, Held, OnDeck, Withdrawal
from services.scheduler.fold.choosing import choose
from services.scheduler.fold.decks import overtaking
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.inside import fair_job, pass_over, survey
from services.scheduler.fold.knobs import Knobs, knobs_of
from services.scheduler.fold.ledger import FLAT, Ledger
from services.scheduler.fold.lines import NEVER_MS, Lane, View, Waiting
from services.scheduler.fold.placement import Place, Room
from services.scheduler.fold.records import PRESSING
from services.scheduler.fold.scratch import Scratch

NAME, VERSION = "blfq", 3
COMPACT_AFTER = 50_000  # undone choices leave entries behind on the boards


class BlfqPolicy:
    """The waiting jobs and who is owed what."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self.ledger = Ledger()
        self.boards = Boards(self.ledger.tenants)
        self.knobs: Knobs
        self.tokens: dict[str, int] = {}
        self._live: dict[str, Waiting] = {}
        self._view = View(self._live)
        self._deadlines: list[list[tuple[int, Waiting]]] = [[] for _ in TIERS]
        self._pressing = 0  # waiting jobs that may overtake
        self._undone = 0
        self._set_knobs(PolicyFacts())

    # -- asked ----------------------------------------------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        """How many jobs could be offered if there were room."""
        return len(self._live)

    @property
    def rules(self) -> Mapping[str, Rule]:
        """What the configuration said of tenants."""
        return self.ledger.rules

    @property
    def weights(self) -> Mapping[str, int]:
        """The weights in it, in thousandths."""
        return {tenant_id: rule.weight_milli for tenant_id, rule in self.ledger.rules.items()}

    def waiting(self, job_id: str) -> Waiting | None:
        """Return the job as it waits, None if it does not."""
        return self._live.get(job_id)

    def in_flight(self, job_id: str) -> bool:
        """Whether the job counts against the caps of its tenant and its user."""
        return job_id in self.ledger.in_flight

    def choose(
        self, found: Sequence[Place], decks: Sequence[OnDeck], held: Sequence[Held], now_ms: int, limit: int
    ) -> tuple[list[Withdrawal], list[Choice]]:
        """Return withdrawals and up to `limit` choices, best first.

        Args:
            found: the places of the pool in order.
            decks: what lies where something runs, and may be overtaken.
            held: the jobs that wait for a busy device.
        """
        if not self._live and not held:
            return [], []
        view = View(self._live, now_ms)
        scratch = Scratch(
            self.ledger, self.boards, self._deadlines, self._estimates, self.knobs, view, dict(self.tokens),
            Room(found), now_ms,
        )  # fmt: skip
        try:
            choices = choose(scratch, held, limit, pressing=self._pressing > 0)
            withdrawals = overtaking(scratch, decks) if self._pressing and len(choices) < limit else []
        finally:
            self._undone += scratch.undo()
        if self._undone > COMPACT_AFTER:
            self.boards.compact()
            self._undone = 0
        return withdrawals, choices

    # -- told -----------------------------------------------------------------------------------------------------

    def apply(self, event: facts.PolicyEvent) -> None:
        """Fold one fact."""
        match event:
            case facts.Waits(job):
                self._add(job, lift=True)
            case facts.Leaves(job_id):
                self._remove(job_id)
            case facts.Replaced(job):
                self._replace(job)
            case facts.Charged():
                self._charge(event)
            case facts.Settled(job_id, device_ms):
                self._true_up(job_id, device_ms, last=True)
            case facts.Recharged(job_id, device_ms):
                self._true_up(job_id, device_ms, last=False)
            case facts.Ended(job_id):
                self._end(job_id)
            case facts.Tokens(resource, n):
                self.tokens[resource] = n
            case facts.Parked(tenant_id, parked):
                self._park(tenant_id, parked)
            case facts.Ruled():
                self._rule(event)
            case facts.Knobbed(knobs):
                self._set_knobs(knobs)
            case facts.ModelsPaused(models):
                self.boards.pause(models)

    def _add(self, job: Waiting, *, lift: bool) -> None:
        tenant = self.ledger.tenants.get(job.tenant_id) or self.ledger.tenant(job.tenant_id)
        user = tenant.users.get(job.user) or tenant.user(job.user)
        if lift and not user.waiting:
            user.v = max(user.v, tenant.horizon.now(tenant.users))
        tenant.waiting += 1
        user.waiting += 1
        self._live[job.job_id] = job
        if job.band <= PRESSING:
            self._pressing += 1
        if job.expires_at_ms < NEVER_MS:
            self._note_deadline(tenant, job)
        unknown = self._put(tenant, job)
        if not tenant.eligible:
            self._review(tenant, lift=lift)
        elif unknown is not None:
            self.boards.note(tenant, unknown)

    def _put(self, tenant: Tenant, job: Waiting) -> Shelf | None:
        """Put the job into its lane; returns the shelf, unless the user's jobs there have put the tenant on boards."""
        board = self.boards.of(job.job_class)
        board.count += 1
        shelf = tenant.shelves.get(board)
        if shelf is None:
            shelf = tenant.shelves[board] = Shelf(board, Lane(job))
            return shelf
        lane = shelf.lane(job.band)
        if lane is None:
            shelf.lanes.append(Lane(job))
            return shelf
        known = lane.queues is None and lane.user == job.user
        lane.add(job, tenant.users, self._view)
        return None if known else shelf

    def _remove(self, job_id: str) -> None:
        job = self._live.pop(job_id)
        tenant = self.ledger.tenants[job.tenant_id]
        user = tenant.users[job.user]
        for account in (tenant, user):
            account.waiting -= 1
        self._pressing -= job.band <= PRESSING
        if tenant.skips is not None:
            tenant.skips.pop(job.key, None)
            tenant.skips = tenant.skips or None
        self._pull(tenant, job)
        self._review(tenant)
        tenant.rest_user(user)
        self._rest(tenant)

    def _replace(self, job: Waiting) -> None:
        """Put the job where its new class waits: it never stops waiting, so nobody rests, and nobody is lifted."""
        known, self._live[job.job_id] = self._live[job.job_id], job
        tenant = self.ledger.tenants[job.tenant_id]
        self._note_deadline(tenant, job)
        unknown = self._put(tenant, job)
        if tenant.eligible and unknown is not None:
            self.boards.note(tenant, unknown)
        self._pull(tenant, known)

    def _pull(self, tenant: Tenant, job: Waiting) -> None:
        """Take a job that is not live any more out of its lane."""
        shelf = tenant.shelves[self.boards.of(job.job_class)]
        lane = shelf.lane(job.band)
        assert lane is not None
        lane.remove(job, self._view)
        if not lane.count:
            shelf.lanes.remove(lane)
        if not shelf.lanes:
            del tenant.shelves[shelf.board]
        shelf.board.count -= 1
        if not shelf.board.count:
            self.boards.drop(shelf.board)

    def _charge(self, event: facts.Charged) -> None:
        ledger, job = self.ledger, self._live.get(event.job_id)
        if event.job_id in ledger.charges:
            return
        tenant, phase = ledger.tenant(event.tenant_id), _phase_index(event.phase)
        anchor, due = ledger.tenants.get(event.anchor), False
        if anchor is not None:
            ledger.advance(anchor, phase)
        if job is not None:
            due = self._pass_over(tenant, job, event)
        ledger.begin(event.job_id, ledger.price(tenant, event.user, event.est_ms, phase, due=due))
        self._review(tenant)

    def _pass_over(self, tenant: Tenant, job: Waiting, event: facts.Charged) -> bool:
        """Count what the job overtakes inside its tenant; returns whether it was due itself."""
        domains = self.boards.all_domains() if event.place is None else self.boards.domains_at(event.place)
        found = survey(tenant, [domain for domain in domains if domain.is_open(self.tokens)], self._view)
        if found:
            fair, due = fair_job(tenant, found, self.knobs.bypass_ms)
            tenant.horizon.reach(tenant.users[fair.user], tenant.users)
            pass_over(tenant, found, job, event.est_ms)
            return due and fair is job
        return False

    def _true_up(self, job_id: str, device_ms: int | None, *, last: bool) -> None:
        charge = self.ledger.charges.get(job_id)
        if charge is None:
            return
        tenant = self.ledger.tenant(charge.tenant_id)
        user, before_v = tenant.user(charge.user), tenant.v
        self.ledger.replace(job_id, device_ms, last=last)
        if tenant.v < before_v:
            self._renew(tenant, user)
        tenant.rest_user(user)
        self._rest(tenant)

    def _end(self, job_id: str) -> None:
        known = self.ledger.end(job_id)
        if known is None:
            return
        tenant, user = known
        self._review(tenant)
        if user.in_flight + 1 == tenant.rule.user_cap:
            user.v = max(user.v, tenant.horizon.now(tenant.users))
            self._renew(tenant, user)
        tenant.rest_user(user)
        self._rest(tenant)

    def _renew(self, tenant: Tenant, user: Account) -> None:
        """Bring the boards in line with accounts that may have fallen, or may run again."""
        if user.waiting:
            for shelf in tenant.shelves.values():
                for lane in shelf.lanes:
                    lane.note(user, self._view)
        if tenant.eligible:
            self.boards.note_all(tenant)

    def _review(self, tenant: Tenant, *, lift: bool = True) -> None:
        """Count the tenant as eligible, or no more; one that begins to be is lifted."""
        eligible = tenant.waiting > 0 and may_run(tenant)
        if eligible == tenant.eligible:
            return
        tier = self.ledger.tiers[tenant.rule.tier]
        if eligible and lift:
            self.ledger.lift(tenant)
        tenant.eligible = eligible
        tier.eligible += 1 if eligible else -1
        if eligible:
            self.boards.note_all(tenant)

    def _rest(self, tenant: Tenant) -> None:
        self.ledger.rest(tenant)
        if not self._live and not self.ledger.charges:
            self.ledger.forgive_all()

    def _park(self, tenant_id: str, parked: bool) -> None:
        (self.ledger.parked.add if parked else self.ledger.parked.discard)(tenant_id)
        tenant = self.ledger.tenants.get(tenant_id)
        if tenant is not None:
            tenant.parked = parked
            self._review(tenant)

    def _rule(self, event: facts.Ruled) -> None:
        caps = [NO_CAP if cap is None else cap for cap in (event.concurrency, event.user_concurrency)]
        rule = Rule(max(1, event.weight_milli), TIERS.index(event.tier), *caps)
        self.ledger.rule(event.tenant_id, rule)
        tenant = self.ledger.tenants.get(event.tenant_id)
        if tenant is None or tenant.rule == rule:
            return
        moved = tenant.rule.tier != rule.tier
        if moved and tenant.eligible:  # it leaves one tier and begins to wait in the other
            self.ledger.tiers[tenant.rule.tier].eligible -= 1
            tenant.eligible = False
        tenant.rule = self.ledger.rules[event.tenant_id]
        if moved:
            self.boards.leave(tenant)
            for job in tenant.jobs(self._view):
                self._note_deadline(tenant, job)
        self._review(tenant)
        if tenant.eligible:
            self.boards.note_all(tenant)
        for user in list(tenant.users.values()):
            self._renew(tenant, user)

    def _note_deadline(self, tenant: Tenant, job: Waiting) -> None:
        if job.expires_at_ms < NEVER_MS:
            heappush(self._deadlines[tenant.rule.tier], (job.expires_at_ms, job))

    def _set_knobs(self, knobs: PolicyFacts) -> None:
        self.knobs = knobs_of(knobs)
        for tier, floor_milli in zip(self.ledger.tiers, self.knobs.floors_milli, strict=True):
            tier.floor_milli = floor_milli

    def resume(self, waiting: Iterable[Waiting]) -> None:
        """Take in the jobs that waited when the state was kept: nobody begins to wait by that."""
        for job in waiting:
            self._add(job, lift=False)
        self.ledger.note_idle()


def _phase_index(phase: str) -> int:
    tier = phase.partition(":")[2]
    return TIERS.index(tier) if tier in TIERS else FLAT

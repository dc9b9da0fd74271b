"""The policy once more, by brute force: plain lists, everything scanned at every step, nothing lazy, nothing undone.

Written from the rules and not from the code: it shares with the policy only the facts it is told, the knobs, the
estimates, and `placement` (which slot has room).
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from services.scheduler.fold import facts
from services.scheduler.fold.accounts import TIERS
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.knobs import Knobs
from services.scheduler.fold.lines import JobClass, Waiting
from services.scheduler.fold.placement import Place, Room, opens_at_ms

SCALE = 1 << 10
HOUR = 3_600_000 * SCALE
Picked = tuple[str, str, int, str, str, str, int | None, int]  # job, worker, slot, anchor, why, phase, batch, its size


@dataclass
class Account:
    v: int = 0
    in_flight: int = 0
    charged: int = 0
    waiting: int = 0


@dataclass
class Clock:
    virtual: int = 0
    ahead: str | None = None

    def now(self, accounts: dict[str, Account]) -> int:
        return min(self.virtual, accounts[self.ahead].v) if self.ahead in accounts else self.virtual

    def reach(self, name: str, accounts: dict[str, Account]) -> None:
        if accounts[name].v >= self.now(accounts):
            self.virtual, self.ahead = accounts[name].v, name


@dataclass
class Tenant(Account):
    users: dict[str, Account] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    skips: dict[int, int] = field(default_factory=dict)
    eligible: bool = False


@dataclass
class Books:
    """What the oracle knows; copied for each round of choosing."""

    jobs: dict[str, Waiting] = field(default_factory=dict)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    rules: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    parked: set[str] = field(default_factory=set)
    paused: frozenset[str] = frozenset()
    tokens: dict[str, int] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    tiers: list[Clock] = field(default_factory=lambda: [Clock() for _ in TIERS])
    rho: list[int] = field(default_factory=lambda: [0 for _ in TIERS])
    total: int = 0
    charges: dict[str, tuple[str, str, int, int, int, int, int]] = field(default_factory=dict)
    flying: dict[str, tuple[str, str]] = field(default_factory=dict)

    def rule(self, tenant: str) -> tuple[int, int, int, int]:
        return self.rules.get(tenant, (3_000, 1, 1 << 30, 1 << 30))

    def is_open(self, job_class: JobClass) -> bool:
        if {job_class.model, job_class.model.partition("@")[0]} & self.paused:
            return False
        return all(self.tokens.get(name, 0) >= units for name, units in job_class.resources)

    def may_run(self, name: str) -> bool:
        return name not in self.parked and self.tenants[name].in_flight < self.rule(name)[2]


class Oracle:
    """Told the same facts as the policy, asked the same question."""

    def __init__(self, knobs: Callable[[], Knobs], estimates: Estimates) -> None:
        self._knobs, self._estimates = knobs, estimates
        self.books = Books()

    # -- told -----------------------------------------------------------------------------------------------------

    def apply(self, event: facts.PolicyEvent) -> None:
        books = self.books
        match event:
            case facts.Waits(job):
                tenant, user = self._account(job.tenant_id, job.user)
                if not user.waiting:
                    user.v = max(user.v, tenant.clock.now(tenant.users))
                user.waiting += 1
                tenant.waiting += 1
                books.jobs[job.job_id] = job
                self._review(job.tenant_id)
            case facts.Leaves(job_id):
                job = books.jobs.pop(job_id)
                tenant = books.tenants[job.tenant_id]
                tenant.waiting -= 1
                tenant.users[job.user].waiting -= 1
                tenant.skips.pop(job.key, None)
                self._review(job.tenant_id)
                self._tidy()
            case facts.Charged():
                self._charge(event)
            case facts.Settled(job_id, device_ms) | facts.Recharged(job_id, device_ms):
                self._true_up(job_id, device_ms or 0, last=isinstance(event, facts.Settled))
            case facts.Ended(job_id):
                name, user_id = books.flying.pop(job_id)
                tenant, user = self._account(name, user_id)
                tenant.in_flight -= 1
                user.in_flight -= 1
                self._review(name)
                if user.in_flight + 1 == books.rule(name)[3]:
                    user.v = max(user.v, tenant.clock.now(tenant.users))
                self._tidy()
            case facts.Ruled():
                caps = [1 << 30 if cap is None else cap for cap in (event.concurrency, event.user_concurrency)]
                rule = (event.weight_milli, TIERS.index(event.tier), *caps)
                if event.tenant_id in books.tenants and books.rule(event.tenant_id)[1] != rule[1]:
                    books.tenants[event.tenant_id].eligible = False
                books.rules[event.tenant_id] = (rule[0], rule[1], caps[0], caps[1])
                if event.tenant_id in books.tenants:
                    self._review(event.tenant_id)
            case facts.Parked(name, parked):
                (books.parked.add if parked else books.parked.discard)(name)
                if name in books.tenants:
                    self._review(name)
            case facts.ModelsPaused(models):
                books.paused = models
            case facts.Tokens(resource, n):
                books.tokens[resource] = n

    def _account(self, name: str, user: str) -> tuple[Tenant, Account]:
        books = self.books
        if name not in books.tenants:
            books.tenants[name] = Tenant(books.clock.now(books.tenants))  # type: ignore[arg-type]
        tenant = books.tenants[name]
        if user not in tenant.users:
            tenant.users[user] = Account(tenant.clock.now(tenant.users))
        return tenant, tenant.users[user]

    def _review(self, name: str) -> None:
        books, tenant, tier = self.books, self.books.tenants[name], self.books.rule(name)[1]
        eligible = tenant.waiting > 0 and books.may_run(name)
        if eligible and not tenant.eligible:
            known: dict[str, Account] = dict(books.tenants)
            tenant.v = max(tenant.v, books.clock.now(known), books.tiers[tier].now(known))
            if not any(other.eligible and books.rule(it)[1] == tier for it, other in books.tenants.items()):
                books.rho[tier] = max(books.rho[tier], books.total)
        tenant.eligible = eligible

    def _tidy(self) -> None:
        """Forget who has nothing but a debt that is overtaken; everybody when the pool is empty."""
        books = self.books
        for name, tenant in list(books.tenants.items()):
            _forget(tenant.users, [tenant.clock])
            if not (tenant.waiting or tenant.charged or tenant.in_flight):
                tenants: dict[str, Account] = dict(books.tenants)
                if tenant.v <= books.clock.now(tenants):
                    for clock in (books.clock, *books.tiers):
                        if clock.ahead == name:
                            clock.virtual, clock.ahead = clock.now(tenants), None
                    del books.tenants[name]
        if not books.jobs and not books.charges:
            known: dict[str, Account] = dict(books.tenants)
            books.clock = Clock(max([books.clock.virtual, *(tenant.v for tenant in books.tenants.values())]))
            books.tiers = [Clock(clock.now(known)) for clock in books.tiers]
            books.tenants = {
                name: tenant
                for name, tenant in books.tenants.items()
                if tenant.waiting or tenant.charged or tenant.in_flight
            }

    def _charge(self, event: facts.Charged) -> None:
        books = self.books
        if event.job_id in books.charges:
            return
        tier = TIERS.index(event.phase.partition(":")[2]) if ":" in event.phase else -1
        known: dict[str, Account] = dict(books.tenants)
        if event.anchor in known:
            books.tiers[books.rule(event.anchor)[1]].reach(event.anchor, known)
            if tier == -1:
                books.clock.reach(event.anchor, known)
        tenant, user = self._account(event.tenant_id, event.user)
        job = books.jobs.get(event.job_id)
        if job is not None:
            candidates = [
                other
                for other in self._jobs(books, event.tenant_id, 0, set())
                if event.place is None or event.place.could_hold(other.job_class)
            ]
            if candidates:
                fair, _ = self._fair_job(books, event.tenant_id, candidates)
                tenant.clock.reach(fair.user, tenant.users)
                self._pass_over(books, tenant, candidates, job, event.est_ms)
        amounts = self._amounts(event.tenant_id, tier, event.est_ms)
        self._add(books, event.tenant_id, event.user, tier, *amounts)
        books.charges[event.job_id] = (event.tenant_id, event.user, tier, *amounts)
        books.flying[event.job_id] = (event.tenant_id, event.user)
        for account in (tenant, user):
            account.charged += 1
            account.in_flight += 1
        self._review(event.tenant_id)
        self._tidy()

    def _true_up(self, job_id: str, device_ms: int, *, last: bool) -> None:
        books = self.books
        if job_id not in books.charges:
            return
        name, user_id, tier, *before = books.charges.pop(job_id)
        after = self._amounts(name, tier, device_ms)
        self._add(books, name, user_id, tier, *(new - old for new, old in zip(after, before, strict=True)))
        if not last:
            books.charges[job_id] = (name, user_id, tier, *after)
            return
        for account in self._account(name, user_id):
            account.charged -= 1
        self._tidy()

    def _amounts(self, name: str, tier: int, device_ms: int) -> tuple[int, int, int, int]:
        floor = self._knobs().floors_milli[tier] if tier >= 0 else 0
        rho = device_ms * SCALE * 1000 // floor if floor else 0
        return device_ms * 1000 * SCALE // self.books.rule(name)[0], device_ms * SCALE, rho, device_ms * SCALE

    def _add(self, books: Books, name: str, user: str, tier: int, v: int, user_v: int, rho: int, total: int) -> None:
        books.tenants[name].v += v
        self._account(name, user) if books is self.books else None
        books.tenants[name].users[user].v += user_v
        books.total += total
        if tier >= 0:
            books.rho[tier] = max(books.rho[tier], books.total - HOUR) + rho

    # -- inside a tenant ------------------------------------------------------------------------------------------

    def _jobs(self, books: Books, name: str, now_ms: int, taken: set[str]) -> list[Waiting]:
        tenant, user_cap = books.tenants[name], books.rule(name)[3]
        return [
            job
            for job in books.jobs.values()
            if job.tenant_id == name and job.job_id not in taken and job.expires_at_ms > now_ms
            if books.is_open(job.job_class) and tenant.users[job.user].in_flight < user_cap
        ]

    def _fair_job(self, books: Books, name: str, jobs: Sequence[Waiting]) -> tuple[Waiting, bool]:
        tenant, bypass_ms = books.tenants[name], self._knobs().bypass_ms
        first = min(job.band for job in jobs)
        for band in range(first + 1, 4):
            of_band = [job for job in jobs if job.band == band]
            if of_band and tenant.skips.get(min(of_band).key, 0) > 2 * bypass_ms:
                return min(of_band), True
        fair = self._fair_of(tenant, [job for job in jobs if job.band == first])
        return fair, tenant.skips.get(fair.key, 0) > bypass_ms

    def _fair_of(self, tenant: Tenant, jobs: Sequence[Waiting]) -> Waiting:
        return min(jobs, key=lambda job: (tenant.users[job.user].v, job.key))

    def _pass_over(
        self, books: Books, tenant: Tenant, jobs: Sequence[Waiting], job: Waiting, est_ms: int
    ) -> None:  # fmt: skip
        for band in {other.band for other in jobs if other.band >= job.band}:
            of_band = [other for other in jobs if other.band == band]
            passed = self._fair_of(tenant, of_band) if band == job.band else min(of_band)
            if passed is not job:
                tenant.skips[passed.key] = tenant.skips.get(passed.key, 0) + est_ms

    # -- asked ----------------------------------------------------------------------------------------------------

    def choose(
        self, found: Sequence[Place], late: Sequence[tuple[str, JobClass, int]], now_ms: int, limit: int
    ) -> list[Picked]:  # fmt: skip
        """Return the choices; `late`: jobs whose hold is over."""
        books = copy.deepcopy(self.books, {id(job): job for job in self.books.jobs.values()})
        return _Round(self, books, found, self._knobs(), self._estimates, now_ms).choose(late, limit)


@dataclass
class _Turn:
    phase: int
    anchor: str
    job: Waiting
    due: bool
    tenants: dict[str, list[Waiting]]


class _Round:
    def __init__(
        self, oracle: Oracle, books: Books, found: Sequence[Place], knobs: Knobs, estimates: Estimates, now_ms: int
    ) -> None:
        self.oracle, self.books, self.knobs, self.estimates, self.now_ms = oracle, books, knobs, estimates, now_ms
        self.room, self.count = Room(found), max(1, len(found))
        self.taken: set[str] = set()
        self.given: list[Waiting] = []
        self.last: tuple[_Turn, Waiting, Place, int] | None = None  # and how far what shares its pass may lead
        self.draining: dict[tuple[str, str], int] = {}

    def choose(self, held: Sequence[tuple[str, JobClass, int]], limit: int) -> list[Picked]:
        over_ms = {job_id: until + self.estimates.load_ms(job_class.model) for job_id, job_class, until in held}
        overdue = [one for one in held if over_ms[one[0]] <= self.now_ms]
        picked = self._late(overdue)
        late = []
        for place in self.room.free():
            if opens_at_ms(place.slot, self.knobs.deck_lead_ms) > self.now_ms:
                late.append(place)
                continue
            while self.room.is_free(place) and len(picked) < limit and (one := self._pick(place)) is not None:
                picked += self._with_companions(one, len(picked), limit)
        picked += self._late([one for one in held if one not in overdue])[: limit - len(picked)]
        given = []
        for place in late:
            turn = self._turn(place) if self.room.is_free(place) else None
            if turn is not None and turn.job.band <= 1 and self._holds(place, turn.job):
                given.append(turn.job)
                picked.append(self._give(turn, turn.job, place, "deck"))
        for job in given:
            for place in [place for place in late if self.room.is_free(place) and self._holds(place, job)][:7]:
                self.room.take(place, job.job_class)
                picked.append((job.job_id, place.worker.id, place.slot.index, "", "decks", "flat", None, 1))
        return picked[:limit]

    def _late(self, held: Sequence[tuple[str, JobClass, int]]) -> list[Picked]:
        picked: list[Picked] = []
        for job_id, job_class, _ in held:
            idle = [place for place in self.room.free() if place.is_idle and self.room.fits(place, job_class)]
            idle.sort(key=lambda place: not _is_warm(place, job_class))  # stable: warm ones first
            if idle:
                self.room.take(idle[0], job_class)
                picked.append((job_id, idle[0].worker.id, idle[0].slot.index, "", "late_hold", "flat", None, 1))
        return picked

    def _turn(self, place: Place, *, flat: bool = False) -> _Turn | None:
        books = self.books
        tenants = {}
        for name in books.tenants:
            jobs = [
                job
                for job in self.oracle._jobs(books, name, self.now_ms, self.taken)
                if place.could_hold(job.job_class)
            ]
            if jobs and books.may_run(name):
                tenants[name] = jobs
        if not tenants:
            return None
        tiers = {books.rule(name)[1] for name in tenants}
        owed = [
            (books.rho[tier], tier)
            for tier in tiers
            if not flat and self.knobs.floors_milli[tier] and books.rho[tier] <= books.total
        ]
        phase = min(owed)[1] if owed else -1
        if owed:
            tenants = {name: jobs for name, jobs in tenants.items() if books.rule(name)[1] == phase}
        anchor = min(tenants, key=lambda name: (books.tenants[name].v, name))
        job, due = self.oracle._fair_job(books, anchor, tenants[anchor])
        return _Turn(phase, anchor, job, due, tenants)

    def _pick(self, place: Place) -> Picked | None:
        while (turn := self._turn(place)) is not None:
            job, lead_v = turn.job, self.books.tenants[turn.anchor].v + self.knobs.lead
            if place.device in self.draining:
                other = self._best(turn, place, self.draining[place.device], None)
                return None if other is None else self._give(turn, other, place, "fit", self.draining[place.device])
            if place.slot.running is not None and job.job_class.resources:
                self.taken.add(job.job_id)
                return None
            if not turn.due and (departed := self._depart(turn, place, lead_v)) is not None:
                return departed
            if (placed := self._placed(turn, place)) is not None:
                return placed
            other = self._best(turn, place, lead_v, None)
            if other is not None:
                return self._give(turn, other, place, "fit", lead_v)
            device = self.room.drained_for(job.job_class)
            self.taken.add(job.job_id)
            if device is not None:
                self.draining.setdefault(device, lead_v)
            if device == place.device:
                return None
        return None

    def _depart(self, turn: _Turn, place: Place, lead_v: int) -> Picked | None:
        pressed = self._pressed(turn, place, lead_v)
        if pressed is not None:
            return self._give(turn, pressed, place, "deadline")
        load_ms = self.estimates.load_ms(turn.job.job_class.model)
        warm_v = min(lead_v, self.books.tenants[turn.anchor].v + 4 * load_ms * SCALE)
        warm = self._best(turn, place, warm_v, place.slot.resident)
        if warm is None:
            return None
        if warm is turn.job:
            return self._give(turn, warm, place, "idle" if place.is_idle else "deck")
        return self._give(turn, warm, place, "warm", warm_v)

    def _placed(self, turn: _Turn, place: Place) -> Picked | None:
        job, word = turn.job, "idle" if place.is_idle else "deck"
        model, here = job.job_class.model, self.room.fits(place, job.job_class)
        if here and _is_warm(place, job.job_class):
            return self._give(turn, job, place, word)
        fitting = [other for other in self.room.free() if self.room.fits(other, job.job_class)]
        warm = [other for other in fitting if _is_warm(other, job.job_class)]
        for other in warm:
            if other.is_idle:
                return self._give(turn, job, other, "idle")
        load_ms = self.estimates.load_ms(model)
        if self.knobs.hold and not job.held and load_ms and warm and not job.job_class.resources:
            busy = warm[0]
            ready_ms = max(self.now_ms, 0 if place.is_idle else place.slot.free_at_ms)
            if not busy.slot.guessed and busy.slot.free_at_ms < ready_ms + load_ms:
                return self._give(turn, job, busy, "hold")
        if (
            here
            and turn.phase >= 0
            and self.knobs.hold
            and 2 * (self.now_ms - job.since_ms) < 3 * load_ms - load_ms % 2
        ):
            flat = self._turn(place, flat=True)
            assert flat is not None
            if not flat.due:
                departed = self._depart(flat, place, self.books.tenants[flat.anchor].v + self.knobs.lead)
                if departed is not None:
                    return departed
        if here:
            return self._give(turn, job, place, word)
        for other in fitting:
            if other.is_idle:
                return self._give(turn, job, other, "idle")
        return None

    def _best(self, turn: _Turn, place: Place, most_v: int, models: Sequence[str] | None) -> Waiting | None:
        best: list[tuple[int, str, int, Waiting]] = []
        for name, jobs in turn.tenants.items():
            tenant = self.books.tenants[name]
            if tenant.v > most_v:
                continue
            first, due = self.oracle._fair_job(self.books, name, jobs)
            fitting = [
                job
                for job in jobs
                if job.band == first.band
                if models is None or (job.job_class.model in models and not job.job_class.alone)
                if self._holds(place, job) and (not due or job is first)
            ]
            if fitting:
                job = self.oracle._fair_of(tenant, fitting)
                best.append((tenant.v, name, tenant.users[job.user].v, job))
        return min(best)[3] if best else None

    def _pressed(self, turn: _Turn, place: Place, lead_v: int) -> Waiting | None:
        margin_ms = self.knobs.deck_lead_ms + self._cost_ms(turn.job, place) // self.count
        for tier in range(len(TIERS)):
            late = sorted(
                (job.expires_at_ms, job)
                for name, jobs in turn.tenants.items()
                for job in jobs
                if self.books.rule(name)[1] == tier and job.expires_at_ms <= self.now_ms + margin_ms
            )
            for _, job in late:
                tenant = self.books.tenants[job.tenant_id]
                first, due = self.oracle._fair_job(self.books, job.tenant_id, turn.tenants[job.tenant_id])
                allowed = job is first or (job.band == first.band and not due)
                if tenant.v <= lead_v and allowed and self._holds(place, job):
                    return job
        return None

    def _holds(self, place: Place, job: Waiting) -> bool:
        return (place.is_idle or not job.job_class.resources) and self.room.fits(place, job.job_class)

    def _cost_ms(self, job: Waiting, place: Place) -> int:
        model = job.job_class.model
        load_ms = 0 if _is_warm(place, job.job_class) else self.estimates.load_ms(model)
        return self.estimates.run_ms(model, job.job_class.bucket) + load_ms

    def _give(self, turn: _Turn, job: Waiting, place: Place, why: str, most_v: int | None = None) -> Picked:
        lead_v = self.books.tenants[turn.anchor].v + self.knobs.lead
        self.last = (turn, job, place, lead_v if most_v is None else most_v)
        self.room.take(place, job.job_class)
        return self._charge(turn, job, place, why, self._cost_ms(job, place))

    def _charge(self, turn: _Turn, job: Waiting, place: Place, why: str, est_ms: int) -> Picked:
        name = job.tenant_id
        tenant = self.books.tenants[name]
        self.oracle._pass_over(self.books, tenant, turn.tenants[name], job, est_ms)
        amounts = self.oracle._amounts(name, turn.phase, est_ms)
        self.oracle._add(self.books, name, job.user, turn.phase, *amounts)
        tenant.in_flight += 1
        tenant.users[job.user].in_flight += 1
        for resource, units in job.job_class.resources:
            self.books.tokens[resource] = self.books.tokens.get(resource, 0) - units
        self.taken.add(job.job_id)
        self.given.append(job)
        phase = "flat" if turn.phase == -1 else f"reserved:{TIERS[turn.phase]}"
        return (job.job_id, place.worker.id, place.slot.index, turn.anchor, why, phase, None, 1)

    # -- who shares the pass --------------------------------------------------------------------------------------

    def _with_companions(self, one: Picked, number: int, limit: int) -> list[Picked]:
        assert self.last is not None
        turn, job, place, most_v = self.last
        shared, most = [one], min(limit - number, job.job_class.max_batch, self._share(job.job_class))
        while one[4] != "hold" and len(shared) < most:
            if not self.books.is_open(job.job_class) or not self.room.may_join(place, job.job_class, len(shared)):
                break
            now = self._again(turn, place)
            other = self._next_of(now, job.job_class, most_v)
            if other is None:
                break
            self.room.join(place, job.job_class, len(shared))
            run_ms = self.estimates.run_ms(job.job_class.model, job.job_class.bucket)
            shared.append(self._charge(now, other, place, "batch", run_ms))
        return shared if len(shared) == 1 else [(*each[:6], number, len(shared)) for each in shared]

    def _share(self, job_class: JobClass) -> int:
        waiting = sum(job.job_class == job_class for job in self.books.jobs.values())
        waiting -= sum(job.job_class == job_class for job in self.given[:-1])
        idle = [place for place in self.room.free() if place.is_idle and self.room.fits(place, job_class)]
        return (waiting + len(idle)) // (len(idle) + 1)

    def _again(self, turn: _Turn, place: Place) -> _Turn:
        """Look at the queues once more, in the same phase and for the same anchor."""
        tiers = [turn.phase] if turn.phase >= 0 else range(len(TIERS))
        tenants = {
            name: [
                job
                for job in self.oracle._jobs(self.books, name, self.now_ms, self.taken)
                if place.could_hold(job.job_class)
            ]
            for name in self.books.tenants
            if self.books.rule(name)[1] in tiers and self.books.may_run(name)
        }
        return _Turn(turn.phase, turn.anchor, turn.job, turn.due, tenants)

    def _next_of(self, turn: _Turn, job_class: JobClass, most_v: int) -> Waiting | None:
        found: list[tuple[int, str, int, Waiting]] = []
        for name, jobs in turn.tenants.items():
            tenant = self.books.tenants[name]
            if jobs and tenant.v <= most_v:
                first, due = self.oracle._fair_job(self.books, name, jobs)
                of_class = [job for job in jobs if job.job_class == job_class and job.band == first.band]
                of_class = [job for job in of_class if not due or job is first]
                if of_class:
                    job = self.oracle._fair_of(tenant, of_class)
                    found.append((tenant.v, name, tenant.users[job.user].v, job))
        return min(found)[3] if found else None


def _is_warm(place: Place, job_class: JobClass) -> bool:
    return job_class.model in place.slot.resident and not job_class.alone


def _forget(users: dict[str, Account], clocks: Sequence[Clock]) -> None:
    for name, user in list(users.items()):
        if not (user.waiting or user.charged or user.in_flight) and user.v <= clocks[0].now(users):
            for clock in clocks:
                if clock.ahead == name:
                    clock.virtual, clock.ahead = clock.now(users), None
            del users[name]

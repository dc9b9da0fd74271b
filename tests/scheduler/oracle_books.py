"""What the oracle knows of jobs, tenants and users: every figure kept plainly, everything scanned when asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.scheduler.fold.accounts import TIERS
from services.scheduler.fold.knobs import Knobs
from services.scheduler.fold.lines import JobClass, Waiting

SCALE = 1 << 10
HOUR = 3_600_000 * SCALE


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

    def account(self, name: str, user: str) -> tuple[Tenant, Account]:
        if name not in self.tenants:
            self.tenants[name] = Tenant(self.clock.now(self.tenants))  # type: ignore[arg-type]
        tenant = self.tenants[name]
        if user not in tenant.users:
            tenant.users[user] = Account(tenant.clock.now(tenant.users))
        return tenant, tenant.users[user]

    def review(self, name: str) -> None:
        tenant, tier = self.tenants[name], self.rule(name)[1]
        eligible = tenant.waiting > 0 and self.may_run(name)
        if eligible and not tenant.eligible:
            known: dict[str, Account] = dict(self.tenants)
            tenant.v = max(tenant.v, self.clock.now(known), self.tiers[tier].now(known))
            if not any(other.eligible and self.rule(it)[1] == tier for it, other in self.tenants.items()):
                self.rho[tier] = max(self.rho[tier], self.total)
        tenant.eligible = eligible

    def tidy(self) -> None:
        """Forget who has nothing but a debt that is overtaken; everybody when the pool is empty."""
        for name, tenant in list(self.tenants.items()):
            _forget(tenant.users, [tenant.clock])
            if not (tenant.waiting or tenant.charged or tenant.in_flight):
                tenants: dict[str, Account] = dict(self.tenants)
                if tenant.v <= self.clock.now(tenants):
                    for clock in (self.clock, *self.tiers):
                        if clock.ahead == name:
                            clock.virtual, clock.ahead = clock.now(tenants), None
                    del self.tenants[name]
        if not self.jobs and not self.charges:
            known: dict[str, Account] = dict(self.tenants)
            self.clock = Clock(max([self.clock.virtual, *(tenant.v for tenant in self.tenants.values())]))
            self.tiers = [Clock(clock.now(known)) for clock in self.tiers]
            self.tenants = {
                name: tenant
                for name, tenant in self.tenants.items()
                if tenant.waiting or tenant.charged or tenant.in_flight
            }

    def amounts(self, name: str, tier: int, device_ms: int, knobs: Knobs) -> tuple[int, int, int, int]:
        floor = knobs.floors_milli[tier] if tier >= 0 else 0
        rho = device_ms * SCALE * 1000 // floor if floor else 0
        return device_ms * 1000 * SCALE // self.rule(name)[0], device_ms * SCALE, rho, device_ms * SCALE

    def add(self, name: str, user: str, tier: int, v: int, user_v: int, rho: int, total: int) -> None:
        self.tenants[name].v += v
        self.account(name, user)[1].v += user_v
        self.total += total
        if tier >= 0:
            self.rho[tier] = max(self.rho[tier], self.total - HOUR) + rho

    def jobs_of(self, name: str, now_ms: int, taken: set[str]) -> list[Waiting]:
        tenant, user_cap = self.tenants[name], self.rule(name)[3]
        return [
            job
            for job in self.jobs.values()
            if job.tenant_id == name and job.job_id not in taken and job.expires_at_ms > now_ms
            if self.is_open(job.job_class) and tenant.users[job.user].in_flight < user_cap
        ]

    def fair_job(self, name: str, jobs: Sequence[Waiting], bypass_ms: int) -> tuple[Waiting, bool]:
        tenant = self.tenants[name]
        first = min(job.band for job in jobs)
        for band in range(first + 1, 4):
            of_band = [job for job in jobs if job.band == band]
            if of_band and tenant.skips.get(min(of_band).key, 0) > 2 * bypass_ms:
                return min(of_band), True
        fair = fair_of(tenant, [job for job in jobs if job.band == first])
        return fair, tenant.skips.get(fair.key, 0) > bypass_ms

    def pass_over(self, tenant: Tenant, jobs: Sequence[Waiting], job: Waiting, est_ms: int) -> None:
        for band in {other.band for other in jobs if other.band >= job.band}:
            of_band = [other for other in jobs if other.band == band]
            passed = fair_of(tenant, of_band) if band == job.band else min(of_band)
            if passed is not job:
                tenant.skips[passed.key] = tenant.skips.get(passed.key, 0) + est_ms


def fair_of(tenant: Tenant, jobs: Sequence[Waiting]) -> Waiting:
    return min(jobs, key=lambda job: (tenant.users[job.user].v, job.key))


def _forget(users: dict[str, Account], clocks: Sequence[Clock]) -> None:
    for name, user in list(users.items()):
        if not (user.waiting or user.charged or user.in_flight) and user.v <= clocks[0].now(users):
            for clock in clocks:
                if clock.ahead == name:
                    clock.virtual, clock.ahead = clock.now(users), None
            del users[name]

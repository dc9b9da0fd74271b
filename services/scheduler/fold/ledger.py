"""What a charge moves: virtual times of tenant and user, the reserved share of a tier, all that was charged. Pure.

A charge is remembered by job with the very amounts it added, so that a refund takes back exactly those, whatever the
weight has become meanwhile.
A tier with a floor is owed service while its reserved account (what was charged for it in the reserved phase, divided
by the floor) is not beyond all that was charged in the pool.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from services.scheduler.fold.accounts import TIERS, Account, Horizon, Rule, Tenant

SCALE = 1 << 10  # fractions of a weighted ms, so that small weights do not round to nothing
FLAT = -1
_MOST_OWED = 3_600_000 * SCALE  # to a tier: what could be served nowhere is not saved up without end


class Charge(NamedTuple):
    """What the estimate of a job added. `tier`: index of the reserved phase's tier. `due`: nothing may overtake it."""

    tenant_id: str
    user: str
    tier: int = FLAT
    due: bool = False
    v: int = 0
    user_v: int = 0
    rho: int = 0
    device: int = 0


class Tier:
    """A tier: its floor in thousandths of the pool, its reserved account, its virtual time."""

    __slots__ = ("eligible", "floor_milli", "horizon", "index", "name", "rho")

    def __init__(self, index: int) -> None:
        self.index, self.name = index, TIERS[index]
        self.floor_milli, self.rho, self.eligible = 0, 0, 0
        self.horizon = Horizon()


class Ledger:
    """Tenants with their virtual times, the tiers, and the charges that are not settled yet."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        self.rules: dict[str, Rule] = {}
        self.parked: set[str] = set()
        self.tiers = [Tier(index) for index in range(len(TIERS))]
        self.horizon = Horizon()
        self.charged = 0  # of the pool, in all: device ms, scaled
        self.charges: dict[str, Charge] = {}
        self.in_flight: dict[str, tuple[str, str]] = {}  # job -> tenant, user
        self._rules: dict[Rule, Rule] = {}
        self._idle: list[tuple[int, str]] = []  # tenants with nothing but a debt

    def tenant(self, tenant_id: str) -> Tenant:
        """Return the tenant's record, making one at the pool's virtual time."""
        known = self.tenants.get(tenant_id)
        if known is None:
            known = Tenant(tenant_id, self.now(), self.rules.get(tenant_id, _STANDARD))
            known.parked = tenant_id in self.parked
            self.tenants[tenant_id] = known
        return known

    def rule(self, tenant_id: str, rule: Rule) -> None:
        """Note what the configuration says of a tenant."""
        self.rules[tenant_id] = self._rules.setdefault(rule, rule)

    def now(self) -> int:
        """Return the pool's virtual time."""
        return self.horizon.now(self.tenants)

    def cost(self, tenant_id: str, device_ms: int) -> int:
        """Return what `device_ms` adds to the tenant's virtual time."""
        return device_ms * 1000 * SCALE // self.rules.get(tenant_id, _STANDARD).weight_milli

    def lift(self, tenant: Tenant) -> None:
        """Bring a tenant that begins to wait up to where its tier and the pool are."""
        tier = self.tiers[tenant.rule.tier]
        tenant.v = max(tenant.v, self.now(), tier.horizon.now(self.tenants))
        if not tier.eligible:
            tier.rho = max(tier.rho, self.charged)

    def price(self, tenant: Tenant, user: str, device_ms: int, phase: int, *, due: bool = False) -> Charge:
        """Return what device time adds, in this phase."""
        floor_milli = self.tiers[phase].floor_milli if phase != FLAT else 0
        rho = device_ms * SCALE * 1000 // floor_milli if floor_milli else 0
        scaled = device_ms * SCALE
        return Charge(tenant.id, user, phase, due, self.cost(tenant.id, device_ms), scaled, rho, scaled)

    def add(self, charge: Charge) -> None:
        """Let a charge count."""
        tenant = self.tenant(charge.tenant_id)
        tenant.v += charge.v
        tenant.user(charge.user).v += charge.user_v
        self.charged += charge.device
        if charge.tier != FLAT:
            tier = self.tiers[charge.tier]
            tier.rho = max(tier.rho, self.charged - _MOST_OWED) + charge.rho

    def advance(self, anchor: Tenant, phase: int) -> None:
        """Move the virtual times to where the fair choice stands."""
        self.tiers[anchor.rule.tier].horizon.reach(anchor, self.tenants)
        if phase == FLAT:
            self.horizon.reach(anchor, self.tenants)

    def begin(self, job_id: str, charge: Charge) -> None:
        """Charge an estimate from the job's first offer on, and count it in flight."""
        tenant = self.tenant(charge.tenant_id)
        user = tenant.user(charge.user)
        self.add(charge)
        self.charges[job_id] = charge
        self.in_flight[job_id] = (tenant.id, user.id)
        for account in (tenant, user):
            account.charged += 1
            account.in_flight += 1
        tenant.forgive_users()
        self._forgive_idle()

    def replace(self, job_id: str, device_ms: int | None, *, last: bool) -> None:
        """Make a charge, if there is one, what was really taken; None gives it back. `last`: it is settled."""
        before = self.charges.get(job_id)
        if before is None:
            return
        tenant = self.tenant(before.tenant_id)
        after = self.price(tenant, before.user, device_ms or 0, before.tier, due=before.due)
        self.add(
            Charge(
                tenant.id, before.user, before.tier, before.due, after.v - before.v, after.user_v - before.user_v,
                after.rho - before.rho, after.device - before.device,
            )
        )  # fmt: skip
        if last:
            del self.charges[job_id]
            tenant.charged -= 1
            tenant.user(before.user).charged -= 1
        else:
            self.charges[job_id] = after

    def end(self, job_id: str) -> tuple[Tenant, Account] | None:
        """Count a job out of flight."""
        known = self.in_flight.pop(job_id, None)
        if known is None:
            return None
        tenant = self.tenant(known[0])
        user = tenant.user(known[1])
        tenant.in_flight -= 1
        user.in_flight -= 1
        return tenant, user

    def rest(self, tenant: Tenant) -> None:
        """Let go of a tenant that neither waits nor runs, at once or when its debt is overtaken."""
        if not tenant.rests:
            return
        if tenant.v <= self.now():
            self._drop(tenant)
        else:
            heappush(self._idle, (tenant.v, tenant.id))

    def note_idle(self) -> None:
        """Find the tenants and users with nothing but a debt again, after a restore."""
        for tenant in self.tenants.values():
            if tenant.rests:
                heappush(self._idle, (tenant.v, tenant.id))
            for user in tenant.users.values():
                if user.rests:
                    tenant.note_idle(user)

    def forgive_all(self) -> None:
        """The pool is empty: debts are forgiven, since nobody is left to be owed anything."""
        most = max([self.horizon.virtual, *(tenant.v for tenant in self.tenants.values())])
        self.horizon = Horizon(most)
        for tier in self.tiers:
            tier.horizon = Horizon(tier.horizon.now(self.tenants))
        self._idle.clear()
        for tenant in list(self.tenants.values()):
            if tenant.rests:
                del self.tenants[tenant.id]

    def phases(self, tiers: Mapping[int, Tenant]) -> int:
        """Return the tier that is owed most of those that have somebody to serve, FLAT when none is owed."""
        owed = [
            (self.tiers[index].rho, index)
            for index in tiers
            if self.tiers[index].floor_milli and self.tiers[index].rho <= self.charged
        ]
        return min(owed)[1] if owed else FLAT

    def _forgive_idle(self) -> None:
        now = self.now()
        while self._idle and self._idle[0][0] <= now:
            tenant = self.tenants.get(heappop(self._idle)[1])
            if tenant is not None and tenant.rests and tenant.v <= now:
                self._drop(tenant)

    def _drop(self, tenant: Tenant) -> None:
        for horizon in (self.horizon, *(tier.horizon for tier in self.tiers)):
            horizon.let_go(tenant, self.tenants)
        self.tenants.pop(tenant.id, None)


_STANDARD = Rule()

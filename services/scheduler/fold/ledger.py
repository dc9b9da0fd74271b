"""Virtual time: who was charged how much, and what a charge weighs. Integers only, so that every fold agrees.

A charge is remembered by job with the very amount it added, so that a refund takes back exactly that, whatever the
weight has become meanwhile.

The pool's virtual time is where the tenant stood that was served last, as far as it moved the pool forward. If that
tenant is trued up below it, the pool follows: an estimate that was far too high must not put newcomers behind.
"""

from heapq import heappop, heappush

from services.scheduler.fold.lines import Boards, Tenant

SCALE = 1 << 10  # fractions of a weighted ms, so that small weights do not round to nothing
DEFAULT_WEIGHT_MILLI = 3_000  # of a standard tenant until policy.applied says otherwise


class Ledger:
    """Tenants with their virtual times, the pool's virtual time, and the charges that are not settled yet."""

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}
        self.weights: dict[str, int] = {}
        self.charges: dict[str, tuple[str, int]] = {}  # job -> tenant, what was added to its virtual time
        self.virtual = 0
        self.ahead: str | None = None  # the tenant that moved the pool's virtual time last
        self.waiting = 0  # jobs of all tenants
        self.boards = Boards()
        self._idle: list[tuple[int, str]] = []  # tenants with nothing but a debt

    def tenant(self, tenant_id: str) -> Tenant:
        """Return the tenant's record, making one at the pool's virtual time."""
        known = self.tenants.get(tenant_id)
        if known is None:
            known = self.tenants[tenant_id] = Tenant(tenant_id, self.now())
        return known

    def now(self) -> int:
        """Return the pool's virtual time."""
        ahead = self.tenants.get(self.ahead or "")
        return self.virtual if ahead is None else min(self.virtual, ahead.v)

    def cost(self, tenant_id: str, device_ms: int) -> int:
        """Return what `device_ms` adds to the tenant's virtual time."""
        return device_ms * 1000 * SCALE // self.weights.get(tenant_id, DEFAULT_WEIGHT_MILLI)

    def lift(self, tenant: Tenant) -> None:
        """Bring a tenant that begins to wait up to the pool's virtual time."""
        tenant.v = max(tenant.v, self.now())

    def charge(self, job_id: str, tenant_id: str, device_ms: int) -> None:
        """Charge an estimate, once for each job; the pool's virtual time becomes that of the tenant that was served."""
        if job_id in self.charges:
            return
        tenant = self.tenant(tenant_id)
        if tenant.v >= self.now():
            self.virtual, self.ahead = tenant.v, tenant_id
        cost = self.cost(tenant_id, device_ms)
        self.charges[job_id] = (tenant_id, cost)
        tenant.charged += 1
        tenant.v += cost
        self._forgive_idle()

    def settle(self, job_id: str, device_ms: int | None) -> None:
        """Replace the charge of a job by what it really took; None gives it back. Without a charge nothing happens."""
        tenant_id, cost = self.charges.pop(job_id, ("", 0))
        if not tenant_id:
            return
        tenant = self.tenant(tenant_id)
        tenant.charged -= 1
        actual = 0 if device_ms is None else self.cost(tenant_id, device_ms)
        tenant.v += actual - cost
        if actual < cost:
            self.boards.note_all(tenant)
        self.rest(tenant)

    def rest(self, tenant: Tenant) -> None:
        """Let go of a tenant that neither waits nor runs, at once or when its debt is overtaken."""
        if tenant.waiting or tenant.charged:
            return
        if tenant.v <= self.now():
            self._drop(tenant)
        else:
            heappush(self._idle, (tenant.v, tenant.id))
        if not self.charges and not self.waiting:
            self._empty()

    def note_idle(self) -> None:
        """Find the tenants with nothing but a debt again, after a restore."""
        for tenant in self.tenants.values():
            if not tenant.waiting and not tenant.charged:
                heappush(self._idle, (tenant.v, tenant.id))

    def _forgive_idle(self) -> None:
        now = self.now()
        while self._idle and self._idle[0][0] <= now:
            tenant = self.tenants.get(heappop(self._idle)[1])
            if tenant is not None and not tenant.waiting and not tenant.charged and tenant.v <= now:
                self._drop(tenant)

    def _drop(self, tenant: Tenant) -> None:
        if tenant.id == self.ahead:
            self.virtual, self.ahead = self.now(), None
        self.tenants.pop(tenant.id, None)

    def _empty(self) -> None:
        """The pool is empty: debts are forgiven, since nobody is left to be owed anything."""
        self.virtual = max([self.virtual, *(tenant.v for tenant in self.tenants.values())])
        self.ahead = None
        self.tenants.clear()
        self._idle.clear()

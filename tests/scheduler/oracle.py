"""The policy once more, by brute force: plain lists, everything scanned at every step, nothing lazy, nothing undone.

Written from the rules and not from the code: it shares with the policy only the facts it is told, the knobs, the
estimates, and `placement` (which slot has room).
"""

import copy
from collections.abc import Callable, Sequence

from services.scheduler.fold import facts
from services.scheduler.fold.accounts import TIERS
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.knobs import Knobs
from services.scheduler.fold.lines import JobClass, Waiting
from services.scheduler.fold.placement import Place
from tests.scheduler.oracle_books import Account, Books
from tests.scheduler.oracle_round import Picked, Round


class Oracle:
    """Told the same facts as the policy, asked the same question."""

    def __init__(self, knobs: Callable[[], Knobs], estimates: Estimates) -> None:
        self._knobs, self._estimates = knobs, estimates
        self.books = Books()

    def apply(self, event: facts.PolicyEvent) -> None:
        books = self.books
        match event:
            case facts.Waits(job):
                self._wait(job)
            case facts.Leaves(job_id):
                self._leave(job_id)
            case facts.Replaced(job):
                books.jobs[job.job_id] = job
            case facts.Charged():
                self._charge(event)
            case facts.Settled(job_id, device_ms) | facts.Recharged(job_id, device_ms):
                self._true_up(job_id, device_ms or 0, last=isinstance(event, facts.Settled))
            case facts.Ended(job_id):
                self._end(job_id)
            case facts.Ruled():
                self._rule(event)
            case facts.Parked(name, parked):
                (books.parked.add if parked else books.parked.discard)(name)
                if name in books.tenants:
                    books.review(name)
            case facts.ModelsPaused(models):
                books.paused = models
            case facts.Tokens(resource, n):
                books.tokens[resource] = n

    def _wait(self, job: Waiting) -> None:
        tenant, user = self.books.account(job.tenant_id, job.user)
        if not user.waiting:
            user.v = max(user.v, tenant.clock.now(tenant.users))
        user.waiting += 1
        tenant.waiting += 1
        self.books.jobs[job.job_id] = job
        self.books.review(job.tenant_id)

    def _leave(self, job_id: str) -> None:
        job = self.books.jobs.pop(job_id)
        tenant = self.books.tenants[job.tenant_id]
        tenant.waiting -= 1
        tenant.users[job.user].waiting -= 1
        tenant.skips.pop(job.key, None)
        self.books.review(job.tenant_id)
        self.books.tidy()

    def _end(self, job_id: str) -> None:
        books = self.books
        name, user_id = books.flying.pop(job_id)
        tenant, user = books.account(name, user_id)
        tenant.in_flight -= 1
        user.in_flight -= 1
        books.review(name)
        if user.in_flight + 1 == books.rule(name)[3]:
            user.v = max(user.v, tenant.clock.now(tenant.users))
        books.tidy()

    def _rule(self, event: facts.Ruled) -> None:
        books = self.books
        concurrency, per_user = (1 << 30 if cap is None else cap for cap in (event.concurrency, event.user_concurrency))
        tier = TIERS.index(event.tier)
        if event.tenant_id in books.tenants and books.rule(event.tenant_id)[1] != tier:
            books.tenants[event.tenant_id].eligible = False
        books.rules[event.tenant_id] = (event.weight_milli, tier, concurrency, per_user)
        if event.tenant_id in books.tenants:
            books.review(event.tenant_id)

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
        tenant, user = books.account(event.tenant_id, event.user)
        job = books.jobs.get(event.job_id)
        if job is not None:
            candidates = [
                other
                for other in books.jobs_of(event.tenant_id, 0, set())
                if event.place is None or event.place.could_hold(other.job_class)
            ]
            if candidates:
                fair, _ = books.fair_job(event.tenant_id, candidates, self._knobs().bypass_ms)
                tenant.clock.reach(fair.user, tenant.users)
                books.pass_over(tenant, candidates, job, event.est_ms)
        amounts = books.amounts(event.tenant_id, tier, event.est_ms, self._knobs())
        books.add(event.tenant_id, event.user, tier, *amounts)
        books.charges[event.job_id] = (event.tenant_id, event.user, tier, *amounts)
        books.flying[event.job_id] = (event.tenant_id, event.user)
        for account in (tenant, user):
            account.charged += 1
            account.in_flight += 1
        books.review(event.tenant_id)
        books.tidy()

    def _true_up(self, job_id: str, device_ms: int, *, last: bool) -> None:
        books = self.books
        if job_id not in books.charges:
            return
        name, user_id, tier, *before = books.charges.pop(job_id)
        after = books.amounts(name, tier, device_ms, self._knobs())
        books.add(name, user_id, tier, *(new - old for new, old in zip(after, before, strict=True)))
        if not last:
            books.charges[job_id] = (name, user_id, tier, *after)
            return
        for account in books.account(name, user_id):
            account.charged -= 1
        books.tidy()

    def choose(
        self, found: Sequence[Place], late: Sequence[tuple[str, JobClass, int]], now_ms: int, limit: int
    ) -> list[Picked]:  # fmt: skip
        """Return the choices; `late`: jobs whose hold is over."""
        books = copy.deepcopy(self.books, {id(job): job for job in self.books.jobs.values()})
        return Round(books, found, self._knobs(), self._estimates, now_ms).choose(late, limit)

"""What goes before a job: the work of its own tenant in that tenant's order, and what other tenants are owed. Pure.

Tenants and users are served in the order of their virtual times, so a job comes when its tenant's virtual time, moved
on by the tenant's own work before it, is the least. Very long lines, and very many tenants, are sampled, not counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from services.scheduler.fold.accounts import TIERS, Tenant
from services.scheduler.fold.ledger import SCALE
from services.scheduler.fold.lines import JobClass, Lane, Waiting

MOST_COUNTED = 2_000  # jobs of one line
MOST_TENANTS = 256  # twice as many are still looked at one by one


@dataclass(slots=True)
class Work:
    """So many jobs, so much device time; fractions where only a part meets the job in question."""

    jobs: float = 0.0
    ms: float = 0.0

    def add(self, jobs: float, ms: float) -> None:
        """Count more."""
        self.jobs += jobs
        self.ms += ms


class Rival(NamedTuple):
    """Another tenant that waits. Work that could go before a job of certain slots; `cap`: most slots at once."""

    tenant_id: str
    v: int
    weight_milli: int
    tier: str
    jobs: float
    ms: float
    cap: int
    tenants: float = 1.0  # it stands for so many

    def owed(self, until_v: float, within_ms: float | None = None) -> tuple[float, float]:
        """Return jobs and ms that are served before virtual time `until_v` is reached, `within_ms` at most."""
        if self.v >= until_v or not self.jobs:
            return 0.0, 0.0
        each_ms = self.ms / self.jobs
        count = min(self.jobs, float(ceil((until_v - self.v) * self.weight_milli / (1000 * SCALE * max(1.0, each_ms)))))
        if within_ms is not None:
            count = min(count, self.cap * within_ms / max(1.0, each_ms))
        return count * self.tenants, count * each_ms * self.tenants


Meets = Callable[[JobClass], tuple[float, int]]  # how much of a class meets the job in question, and what one takes
Live = Callable[[str], Waiting | None]


def rivals_of(tenants: Mapping[str, Tenant], meets: Meets) -> list[Rival]:
    """Return who else waits; of very many tenants a sample that stands for all."""
    sample, step = sampled(tenants, 0)
    return [_rival(tenant, meets, step) for tenant in sample if tenant.waiting and not tenant.parked]


def sampled(tenants: Mapping[str, Tenant], first: int) -> tuple[list[Tenant], int]:
    """Return some of the tenants, and for how many each of them stands; `first` chooses which."""
    everybody = list(tenants.values())
    step = max(1, len(everybody) // MOST_TENANTS)
    return everybody[first % step :: step], step


def own_before(tenant: Tenant, user_id: str, band: int, key: int, live: Live, meets: Meets) -> tuple[Work, Work]:
    """Return the tenant's own work before a job with this key: of more pressing bands, and of its own band."""
    higher, users = Work(), dict[str, tuple[Work, Work]]()
    for shelf in tenant.shelves.values():
        part, each_ms = meets(shelf.board.job_class)
        for lane in shelf.lanes if part else ():
            if lane.band < band:
                higher.add(lane.count * part, lane.count * part * each_ms)
            for name, count, heap in _by_user(lane) if lane.band == band else ():
                all_of_it, earlier = users.setdefault(name, (Work(), Work()))
                all_of_it.add(count * part, count * part * each_ms)
                if name == user_id:
                    before = count_before(heap, count, key, live)
                    earlier.add(before * part, before * part * each_ms)
    return higher, _of_users(tenant, user_id, users)


def count_before(heap: list[Waiting], count: int, key: int, live: Live) -> float:
    """Return how many of the `count` jobs of a line go before `key`; a long line is sampled."""
    step = max(1, len(heap) // MOST_COUNTED)
    alive = [job for job in heap[::step] if live(job.job_id) is job]
    before = sum(job.key < key for job in alive)
    return before if step == 1 else before * count / max(1, len(alive))


def _of_users(tenant: Tenant, user_id: str, users: Mapping[str, tuple[Work, Work]]) -> Work:
    _, found = users.get(user_id, (Work(), Work()))
    mine = tenant.users.get(user_id)
    own_v = tenant.horizon.now(tenant.users) if mine is None else mine.v
    until_v = own_v + found.ms * SCALE
    total = Work(found.jobs, found.ms)
    for name, (all_of_it, _) in users.items():
        if name == user_id or not all_of_it.jobs:
            continue
        each_ms = max(1.0, all_of_it.ms / all_of_it.jobs)
        count = min(all_of_it.jobs, float(ceil(max(0.0, until_v - tenant.users[name].v) / (SCALE * each_ms))))
        total.add(count, count * each_ms)
    return total


def _rival(tenant: Tenant, meets: Meets, step: int) -> Rival:
    work = Work()
    for shelf in tenant.shelves.values():
        part, each_ms = meets(shelf.board.job_class)
        if part:
            count = part * sum(lane.count for lane in shelf.lanes)
            work.add(count, count * each_ms)
    rule = tenant.rule
    return Rival(tenant.id, tenant.v, rule.weight_milli, TIERS[rule.tier], work.jobs, work.ms, rule.cap, step)


def _by_user(lane: Lane) -> Iterator[tuple[str, int, list[Waiting]]]:
    if lane.queues is None:
        yield lane.user, lane.count, lane.heap
        return
    for name, queue in lane.queues.items():
        yield name, queue.count, queue.heap


def total(rivals: Iterable[Rival], until_v: float, within_ms: float | None = None) -> tuple[Work, dict[str, float]]:
    """Return what all of them are served before `until_v`, and its ms by tier."""
    work, by_tier = Work(), dict[str, float]()
    for rival in rivals:
        jobs, ms = rival.owed(until_v, within_ms)
        work.add(jobs, ms)
        by_tier[rival.tier] = by_tier.get(rival.tier, 0.0) + ms
    return work, by_tier

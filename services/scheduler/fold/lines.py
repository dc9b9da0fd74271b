"""The waiting jobs, by tenant and class, and the board of each class: which tenants wait in it, by virtual time.

Heaps are lazy: what they hold beyond the truth is dropped when it comes to the top, so nothing ever depends on their
layout. A tenant stands on the boards of all classes it waits in; a board's entry counts only if it is the one noted on
the tenant's line, and one that is too low is renewed at the top.
"""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from services.scheduler.fold.placement import Class

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Waiting:
    """An eligible job as the policy sees it: due, not offered, not asked to stop."""

    job_id: str
    tenant_id: str
    job_class: Class
    band: int
    order: int
    since_ms: int
    expires_at_ms: int = NEVER_MS

    @property
    def rank(self) -> tuple[int, int, str]:
        """Urgent before low, then in the order of admission."""
        return (self.band, self.order, self.job_id)


@dataclass(slots=True)
class Line:
    """Jobs of one tenant in one class, best first."""

    jobs: dict[str, Waiting] = field(default_factory=dict)
    heap: list[tuple[int, int, str]] = field(default_factory=list)
    noted: int | None = None  # the tenant's virtual time on the class's board

    def add(self, job: Waiting) -> None:
        """Put a job into the line; twice is once."""
        self.jobs[job.job_id] = job
        heappush(self.heap, job.rank)

    def head(self, now_ms: int, expired: list[Waiting]) -> Waiting | None:
        """Return the best job; those past their start-by clock are moved to `expired` (the caller puts them back)."""
        while self.heap:
            rank = self.heap[0]
            job = self.jobs.get(rank[2])
            if job is None or job.rank != rank:
                heappop(self.heap)
            elif job.expires_at_ms <= now_ms:
                expired.append(self.jobs.pop(job.job_id))
            else:
                return job
        return None


@dataclass(slots=True)
class Tenant:
    """A tenant with waiting or charged jobs, or with a debt. `v`: virtual time, its weighted device time so far."""

    id: str
    v: int = 0
    waiting: int = 0
    charged: int = 0
    lines: dict[Class, Line] = field(default_factory=dict)


class Boards:
    """For each class the tenants that wait in it, least virtual time first."""

    def __init__(self) -> None:
        self._boards: dict[Class, list[tuple[int, str]]] = {}

    def classes(self) -> list[Class]:
        """Return the classes that may have waiting jobs, in an order that depends on nothing but their names."""
        return sorted(self._boards)

    def note(self, tenant: Tenant, job_class: Class) -> None:
        """Show the tenant on the board of the class with its present virtual time."""
        line = tenant.lines[job_class]
        if line.noted != tenant.v:
            line.noted = tenant.v
            board = self._boards.setdefault(job_class, [])
            heappush(board, (tenant.v, tenant.id))

    def note_all(self, tenant: Tenant) -> None:
        """Renew all entries of a tenant; needed when its virtual time falls."""
        for job_class in tenant.lines:
            self.note(tenant, job_class)

    def first(self, job_class: Class, tenants: dict[str, Tenant]) -> Tenant | None:
        """Return the tenant with the least virtual time that has a line in the class."""
        board = self._boards.get(job_class)
        while board:
            v, tenant_id = board[0]
            tenant = tenants.get(tenant_id)
            line = tenant.lines.get(job_class) if tenant is not None else None
            if tenant is None or line is None or not line.jobs or line.noted != v:
                heappop(board)
                if line is not None and line.noted == v:
                    line.noted = None
            elif tenant.v != v:
                heappop(board)
                self.note(tenant, job_class)
            else:
                return tenant
        self._boards.pop(job_class, None)
        return None

    def compact(self, tenants: dict[str, Tenant]) -> None:
        """Build all boards anew; changes no choice, only memory."""
        self._boards = {}
        for tenant in tenants.values():
            for job_class, line in tenant.lines.items():
                line.noted = tenant.v if line.jobs else None
                if line.jobs:
                    self._boards.setdefault(job_class, []).append((tenant.v, tenant.id))
        for board in self._boards.values():
            heapify(board)

    def __len__(self) -> int:
        return sum(len(board) for board in self._boards.values())

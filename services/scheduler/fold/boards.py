"""Which tenants wait for what, least virtual time first: a board for each tier and class, one for each tier and domain.

A domain is all classes that the same kinds of slots could ever hold and that draw on the same resources. It makes the
fair choice cost the number of domains and not of classes; what a choice says does not depend on how classes are cut.
Boards are lazy as lanes are: an entry counts only if it is the one noted on the tenant, and one that is too low is
renewed at the top.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from services.scheduler.fold.accounts import TIERS, Tenant
from services.scheduler.fold.lines import JobClass, Lane, View
from services.scheduler.fold.placement import Pinned, Place, could_hold

Entry = tuple[int, str]  # virtual time, tenant
_EXAMINED = 16  # entries of one board a preference looks at; past it, it is given up


class Domain:
    """Classes that stand and fall together."""

    __slots__ = ("classes", "heaps", "holders", "paused", "resources")

    def __init__(self, holders: int, resources: tuple[tuple[str, int], ...], paused: bool) -> None:
        self.holders, self.resources, self.paused = holders, resources, paused
        self.classes: dict[ClassBoard, None] = {}
        self.heaps: tuple[list[Entry], ...] = tuple([] for _ in TIERS)

    def is_open(self, tokens: Mapping[str, int]) -> bool:
        """Whether a start may draw on all its resources now."""
        return not self.resources or all(tokens.get(name, 0) >= units for name, units in self.resources)


class ClassBoard:
    """The tenants with a job of one class."""

    __slots__ = ("count", "domain", "heaps", "job_class")

    def __init__(self, job_class: JobClass, domain: Domain) -> None:
        self.job_class, self.domain, self.count = job_class, domain, 0
        self.heaps: tuple[list[Entry], ...] = tuple([] for _ in TIERS)


class Shelf:
    """One tenant's lanes in one class, by band. `noted`: its entry on the class's board."""

    __slots__ = ("board", "lanes", "noted")

    def __init__(self, board: ClassBoard, lane: Lane) -> None:
        self.board = board
        self.lanes = [lane]
        self.noted: Entry | None = None

    def lane(self, band: int) -> Lane | None:
        """Return the lane of this band."""
        for lane in self.lanes:
            if lane.band == band:
                return lane
        return None


class Kind:
    """A kind of slot: what its worker serves and how much it may hold."""

    __slots__ = ("bit", "domains", "models", "pinned", "slot_bytes")

    def __init__(self, models: frozenset[str], slot_bytes: int, pinned: Pinned, bit: int) -> None:
        self.models, self.slot_bytes, self.pinned, self.bit = models, slot_bytes, pinned, bit
        self.domains: tuple[Domain, ...] | None = None

    def could_hold(self, job_class: JobClass) -> bool:
        """Whether an empty slot of this kind could."""
        return could_hold(self.models, self.slot_bytes, self.pinned, job_class)


class Boards:
    """All boards of a pool."""

    def __init__(self, tenants: dict[str, Tenant]) -> None:
        self._tenants = tenants
        self._classes: dict[JobClass, ClassBoard] = {}
        self._by_model: dict[str, dict[ClassBoard, None]] = {}
        self._domains: dict[tuple[int, tuple[tuple[str, int], ...], bool], Domain] = {}
        self._kinds: dict[tuple[frozenset[str], int, Pinned], Kind] = {}
        self.paused_models: frozenset[str] = frozenset()

    # -- classes and domains --------------------------------------------------------------------------------------

    def of(self, job_class: JobClass) -> ClassBoard:
        """Return the board of a class, making one."""
        known = self._classes.get(job_class)
        if known is None:
            known = self._classes[job_class] = ClassBoard(job_class, self._domain_of(job_class))
            known.domain.classes[known] = None
            self._by_model.setdefault(job_class.model, {})[known] = None
        return known

    def drop(self, board: ClassBoard) -> None:
        """Forget a class in which nobody waits."""
        del self._classes[board.job_class], board.domain.classes[board]
        same_model = self._by_model[board.job_class.model]
        del same_model[board]
        if not same_model:
            del self._by_model[board.job_class.model]

    def of_model(self, model: str) -> Iterator[ClassBoard]:
        """Return the boards of all classes of a model."""
        return iter(self._by_model.get(model, ()))

    def domains_at(self, place: Place) -> tuple[Domain, ...]:
        """Return the domains whose jobs this place could ever hold."""
        kind = self._kind_of(place)
        if kind.domains is None:
            kind.domains = tuple(d for d in self._domains.values() if d.holders >> kind.bit & 1 and not d.paused)
        return kind.domains

    def all_domains(self) -> tuple[Domain, ...]:
        """Return every domain that is not paused."""
        return tuple(domain for domain in self._domains.values() if not domain.paused)

    def pause(self, models: frozenset[str]) -> None:
        """Close the classes of these models (by name, or name and version), and open all others."""
        self.paused_models = models
        for board in list(self._classes.values()):
            self._move(board, self._domain_of(board.job_class))

    def is_paused(self, model: str) -> bool:
        """Whether nothing of the model is offered."""
        return model in self.paused_models or model.partition("@")[0] in self.paused_models

    def _domain_of(self, job_class: JobClass) -> Domain:
        holders = sum(1 << kind.bit for kind in self._kinds.values() if kind.could_hold(job_class))
        return self._domain(holders, job_class.resources, self.is_paused(job_class.model))

    def _domain(self, holders: int, resources: tuple[tuple[str, int], ...], paused: bool) -> Domain:
        key = (holders, resources, paused)
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = Domain(*key)
            for kind in self._kinds.values():
                kind.domains = None
        return known

    def _kind_of(self, place: Place) -> Kind:
        key = (place.worker.models, place.slot.bytes, place.slot.pinned)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind(*key, bit=len(self._kinds))
            self._divide(kind)
        return kind

    def _divide(self, kind: Kind) -> None:
        """Cut the domains by what a new kind could hold; one that it holds whole, or not at all, stays together."""
        before, self._domains = list(self._domains.values()), {}
        for domain in before:
            held = [board for board in domain.classes if kind.could_hold(board.job_class)]
            rest = [board for board in domain.classes if not kind.could_hold(board.job_class)]
            if held and not rest:
                domain.holders |= 1 << kind.bit
            if domain.classes:
                self._domains[domain.holders, domain.resources, domain.paused] = domain
            if held and rest:
                for board in held:
                    self._move(board, self._domain(domain.holders | 1 << kind.bit, domain.resources, domain.paused))
        for known in self._kinds.values():
            known.domains = None

    def _move(self, board: ClassBoard, domain: Domain) -> None:
        if board.domain is domain:
            return
        del board.domain.classes[board]
        board.domain, domain.classes[board] = domain, None
        for heap in board.heaps:
            for _, tenant_id in list(heap):
                tenant = self._tenants.get(tenant_id)
                shelf = None if tenant is None else tenant.shelves.get(board)
                if tenant is not None and shelf is not None:
                    self.note(tenant, shelf)

    # -- entries --------------------------------------------------------------------------------------------------

    def note(self, tenant: Tenant, shelf: Shelf) -> None:
        """See to it that the tenant is found on the boards of the class and its domain.

        An entry below its virtual time is good enough: it is renewed when it comes to the top.
        """
        noted, board, v = shelf.noted, shelf.board, tenant.v
        if noted is None or noted[0] > v:
            shelf.noted = tenant.entry()
            heappush(board.heaps[tenant.rule.tier], shelf.noted)
        noted = tenant.spots.get(board.domain)
        if noted is None or noted[0] > v:
            tenant.spots[board.domain] = entry = tenant.entry()
            heappush(board.domain.heaps[tenant.rule.tier], entry)

    def note_all(self, tenant: Tenant) -> None:
        """Do so for all it waits for; needed when its virtual time falls, or when it may be served again."""
        v, domain = tenant.v, None
        for shelf in tenant.shelves.values():
            noted = shelf.noted
            if noted is None or noted[0] > v or shelf.board.domain is not domain:
                domain = shelf.board.domain
                self.note(tenant, shelf)

    def leave(self, tenant: Tenant) -> None:
        """Let no entry of the tenant count any more; it goes to the boards of another tier."""
        tenant.mark = (tenant.v, tenant.id)
        tenant.spots.clear()
        for shelf in tenant.shelves.values():
            shelf.noted = None

    def first(self, domain: Domain, tier: int, view: View) -> Tenant | None:
        """Return the tenant of the tier with the least virtual time that has a job of the domain."""
        heap = domain.heaps[tier]
        while heap:
            entry = heap[0]
            tenant = self._tenants.get(entry[1])
            if tenant is None or tenant.spots.get(domain) is not entry:
                heappop(heap)
            elif entry is not tenant.entry():
                heappop(heap)
                tenant.spots[domain] = tenant.entry()
                heappush(heap, tenant.entry())
            elif has_job(tenant, domain, view):
                return tenant
            else:
                heappop(heap)
                del tenant.spots[domain]
        return None

    def in_class(self, board: ClassBoard, tier: int, most_v: int, view: View) -> Iterator[tuple[Tenant, Shelf]]:
        """Yield tenants of the tier that wait in the class, least virtual time first, up to `most_v`."""
        heap = board.heaps[tier]
        passed: list[Entry] = []
        try:
            while heap and heap[0][0] <= most_v and len(passed) < _EXAMINED:
                entry = heap[0]
                tenant = self._tenants.get(entry[1])
                shelf = None if tenant is None else tenant.shelves.get(board)
                if tenant is None or shelf is None or shelf.noted is not entry:
                    heappop(heap)
                elif entry is not tenant.entry():
                    heappop(heap)
                    shelf.noted = tenant.entry()
                    heappush(heap, shelf.noted)
                elif not may_run(tenant):
                    heappop(heap)
                    shelf.noted = None
                else:
                    yield tenant, shelf
                    passed.append(heappop(heap))
        finally:
            for entry in passed:
                heappush(heap, entry)

    def compact(self) -> None:
        """Build all boards anew; changes no choice, only memory."""
        for heap in self._heaps():
            heap.clear()
        for tenant in self._tenants.values():
            tenant.spots.clear()
            for shelf in tenant.shelves.values():
                shelf.noted = None
            if tenant.eligible:
                self.note_all(tenant)

    def __len__(self) -> int:
        return sum(len(heap) for heap in self._heaps())

    def _heaps(self) -> Iterator[list[Entry]]:
        for board in self._classes.values():
            yield from board.heaps
        for domain in self._domains.values():
            yield from domain.heaps


def may_run(tenant: Tenant) -> bool:
    """Whether one more job of the tenant may be offered at all."""
    return not tenant.parked and tenant.in_flight < tenant.rule.cap


def has_job(tenant: Tenant, domain: Domain, view: View) -> bool:
    """Whether the tenant has a job of the domain that may be offered."""
    if may_run(tenant):
        for shelf in tenant.shelves.values():
            if shelf.board.domain is domain:
                for lane in shelf.lanes:
                    if lane.fair(tenant.users, tenant.rule.user_cap, view) is not None:
                        return True
    return False

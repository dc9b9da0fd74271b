"""Who is charged: tenants, and inside each its users. Virtual times are integers, so that every fold agrees.

The virtual time of a circle is where the account stood that was the fair choice last, as far as it moved the circle
forward. If that account is trued up below it, the circle follows: an estimate that was far too high must not put
newcomers behind.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from contracts.events import Tier

if TYPE_CHECKING:
    from services.scheduler.fold.boards import ClassBoard, Domain, Shelf
    from services.scheduler.fold.lines import View, Waiting

NO_CAP = 1 << 30
DEFAULT_WEIGHT_MILLI = 3_000  # of a standard tenant until policy.applied says otherwise
TIERS: tuple[Tier, ...] = ("enterprise", "standard", "free")
_STANDARD = 1


class Account:
    """A user, or what a user and a tenant have in common. `v`: virtual time, the weighted device time so far."""

    __slots__ = ("charged", "id", "in_flight", "v", "waiting")

    def __init__(self, account_id: str, v: int) -> None:
        self.id, self.v = account_id, v
        self.waiting = 0  # jobs that could be offered
        self.charged = 0  # charges that are not settled
        self.in_flight = 0  # from the first offer to the end of the attempt

    @property
    def rests(self) -> bool:
        """Nothing but a debt is left, if that."""
        return not (self.waiting or self.charged or self.in_flight)


class Horizon:
    """The virtual time of a circle, or of a part of it. `ahead`: the account that moved it last."""

    __slots__ = ("ahead", "virtual")

    def __init__(self, virtual: int = 0, ahead: str | None = None) -> None:
        self.virtual, self.ahead = virtual, ahead

    def now(self, members: Mapping[str, Account]) -> int:
        """Return the virtual time."""
        ahead = None if self.ahead is None else members.get(self.ahead)
        return self.virtual if ahead is None else min(self.virtual, ahead.v)

    def reach(self, account: Account, members: Mapping[str, Account]) -> None:
        """Move to where the fair choice stands, never back."""
        if account.v >= self.now(members):
            self.virtual, self.ahead = account.v, account.id

    def let_go(self, account: Account, members: Mapping[str, Account]) -> None:
        """Stop following an account that is dropped."""
        if self.ahead == account.id:
            self.virtual, self.ahead = self.now(members), None


class Rule(NamedTuple):
    """What a choice uses of a tenant's configuration. Weight in thousandths: tier weight x tenant weight."""

    weight_milli: int = DEFAULT_WEIGHT_MILLI
    tier: int = _STANDARD
    cap: int = NO_CAP
    user_cap: int = NO_CAP


class Tenant(Account):
    """A tenant with waiting or charged jobs, or with a debt."""

    __slots__ = ("eligible", "horizon", "idle_users", "mark", "parked", "rule", "shelves", "skips", "spots", "users")

    def __init__(self, tenant_id: str, v: int, rule: Rule) -> None:
        super().__init__(tenant_id, v)
        self.rule = rule
        self.parked = False  # paused, or its budget of the day is used
        self.eligible = False  # it waits and may run: counted in its tier
        self.mark: tuple[int, str] = (v, tenant_id)  # its entry on every board; another object whenever v has changed
        self.shelves: dict[ClassBoard, Shelf] = {}
        self.spots: dict[Domain, tuple[int, str]] = {}
        self.users: dict[str, Account] = {}
        self.horizon = Horizon()  # of the users
        self.idle_users: list[tuple[int, str]] | None = None  # with nothing but a debt; most tenants never have any
        self.skips: dict[int, int] | None = None  # job that waits -> own service in ms that overtook it

    def entry(self) -> tuple[int, str]:
        """Return what stands for the tenant on a board."""
        if self.mark[0] != self.v:
            self.mark = (self.v, self.id)
        return self.mark

    def jobs(self, view: "View") -> Iterator["Waiting"]:
        """Return the jobs of all its lanes."""
        for shelf in self.shelves.values():
            for lane in shelf.lanes:
                yield from (job for job in lane.heap if view.live.get(job.job_id) is job)

    def user(self, user_id: str) -> Account:
        """Return the user's account, making one where the users stand."""
        known = self.users.get(user_id)
        if known is None:
            known = self.users[user_id] = Account(user_id, self.horizon.now(self.users))
        return known

    def rest_user(self, user: Account) -> None:
        """Let go of a user that neither waits nor runs, at once or when its debt is overtaken."""
        if not user.rests:
            return
        if user.v <= self.horizon.now(self.users):
            self._drop(user)
        else:
            self.note_idle(user)

    def note_idle(self, user: Account) -> None:
        """Remember that the user has nothing but a debt."""
        if self.idle_users is None:
            self.idle_users = []
        heappush(self.idle_users, (user.v, user.id))

    def forgive_users(self) -> None:
        """Drop the users whose debt is overtaken."""
        now = self.horizon.now(self.users)
        while self.idle_users and self.idle_users[0][0] <= now:
            user = self.users.get(heappop(self.idle_users)[1])
            if user is not None and user.rests and user.v <= now:
                self._drop(user)

    def _drop(self, user: Account) -> None:
        self.horizon.let_go(user, self.users)
        self.users.pop(user.id, None)

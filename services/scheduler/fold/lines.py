"""The waiting jobs of one tenant and class: a lane for each priority, in it the users, in each the order of admission.

Heaps are lazy: what they hold beyond the truth is dropped when it comes to the top, so nothing ever depends on their
layout. A `View` says what is true: the fold's own, or that of one choice, which notes what it takes off so that it can
be put back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from services.scheduler.fold.accounts import Account

NEVER_MS = 1 << 62
_BAND_BITS = 48


class JobClass(NamedTuple):
    """Jobs of one class fit the same slots. `bucket` and `max_batch` only where jobs may share a pass."""

    model: str
    bytes: int
    resources: tuple[tuple[str, int], ...] = ()
    bucket: str = ""
    max_batch: int = 1
    alone: bool = False  # a device for itself, with `bytes` at least, and a fresh process

    @property
    def claim(self) -> int:
        """Bytes it takes up where it is placed; 0: the whole device, as for all that nobody has measured."""
        return 0 if self.alone else self.bytes


class Waiting(NamedTuple):
    """An eligible job as the policy sees it: due, not offered, not asked to stop. `key` is unique and orders them."""

    key: int
    job_id: str
    tenant_id: str
    user: str
    job_class: JobClass
    since_ms: int
    expires_at_ms: int = NEVER_MS
    held: bool = False

    @property
    def band(self) -> int:
        """Urgent is 0."""
        return self.key >> _BAND_BITS


def key_of(band: int, order: int) -> int:
    """Return what sorts urgent before low, then by admission.

    >>> key_of(0, 7) < key_of(1, 3) < key_of(1, 4)
    True
    """
    return band << _BAND_BITS | order


@dataclass(slots=True)
class View:
    """Which jobs count. `taken` and those past `now_ms` do not; what was taken off for that is in `stash`."""

    live: dict[str, Waiting]
    now_ms: int = 0
    taken: set[str] = field(default_factory=set)
    stash: list[tuple[list[Waiting], Waiting]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  # tenants that are not as the fold has them
    dropped: list[tuple["Lane", Account]] = field(default_factory=list)  # users off a lane's board for this view only

    def head(self, heap: list[Waiting]) -> Waiting | None:
        """Return the first that counts."""
        while heap:
            job = heap[0]
            if self.live.get(job.job_id) is not job:
                heappop(heap)
            elif job.expires_at_ms <= self.now_ms or job.job_id in self.taken:
                self.stash.append((heap, heappop(heap)))
                self.touched.add(job.tenant_id)
            else:
                return job
        return None

    def put_back(self) -> int:
        """Give back what was taken off; returns how much that was."""
        for heap, job in self.stash:
            heappush(heap, job)
        count = len(self.stash)
        self.stash, self.taken = [], set()
        for lane, user in self.dropped:
            lane.note(user, self)
        self.dropped = []
        return count


class Queue:
    """One user's jobs in a lane. `noted`: its entry on the lane's board."""

    __slots__ = ("count", "heap", "noted")

    def __init__(self) -> None:
        self.heap: list[Waiting] = []
        self.count = 0
        self.noted: tuple[int, int, str] | None = None


class Lane:
    """Jobs of one tenant, class and band. While all are of one user there are no queues beside the heap."""

    __slots__ = ("band", "board", "count", "heap", "queues", "user")

    def __init__(self, first: Waiting) -> None:
        self.band, self.user, self.count = first.band, first.user, 1
        self.heap = [first]
        self.queues: dict[str, Queue] | None = None
        self.board: list[tuple[int, int, str]] | None = None

    def add(self, job: Waiting, users: Mapping[str, Account], view: View) -> None:
        """Put a further job into the lane; one that is empty is given up, never filled again."""
        if self.queues is None and job.user != self.user:
            self._split(users, view)
        heappush(self.heap, job)
        self.count += 1
        if self.queues is not None:
            self._join(job, users, view)

    def remove(self, job: Waiting, view: View) -> None:
        """Count a job out that is not live any more."""
        self.count -= 1
        if len(self.heap) > 2 * self.count + 16:
            _prune(self.heap, view)
        if self.queues is not None:
            queue = self.queues[job.user]
            queue.count -= 1
            if not queue.count:
                del self.queues[job.user]
            elif len(queue.heap) > 2 * queue.count + 16:
                _prune(queue.heap, view)

    def oldest(self, view: View) -> Waiting | None:
        """Return the job that was admitted first."""
        return view.head(self.heap)

    def fair(self, users: Mapping[str, Account], user_cap: int, view: View) -> tuple[int, Waiting] | None:
        """Return the oldest job of the user who was charged least, with that charge; users at their cap have none."""
        if self.queues is None:
            job = self.heap[0] if self.heap else None
            if job is None or view.live.get(job.job_id) is not job or view.taken or job.expires_at_ms <= view.now_ms:
                job = view.head(self.heap)
            user = users[self.user]
            return None if job is None or user.in_flight >= user_cap else (user.v, job)
        return self._fair_of_many(users, user_cap, view)

    def note(self, user: Account, view: View) -> None:
        """Renew the user's place on the board; needed when it falls."""
        queue = None if self.queues is None else self.queues.get(user.id)
        job = None if queue is None else view.head(queue.heap)
        if queue is None or job is None or self.board is None:
            return
        if queue.noted is None or queue.noted[:2] > (user.v, job.key):
            queue.noted = (user.v, job.key, user.id)
            heappush(self.board, queue.noted)

    def _fair_of_many(self, users: Mapping[str, Account], user_cap: int, view: View) -> tuple[int, Waiting] | None:
        assert self.queues is not None
        assert self.board is not None
        while self.board:
            entry = self.board[0]
            queue = self.queues.get(entry[2])
            if queue is None or queue.noted is not entry:
                heappop(self.board)
                continue
            user, job = users[entry[2]], view.head(queue.heap)
            if job is not None and user.in_flight < user_cap and entry[:2] == (user.v, job.key):
                return user.v, job
            heappop(self.board)
            queue.noted = None
            if job is None:
                view.dropped.append((self, user))
            elif user.in_flight < user_cap:
                self.note(user, view)
        return None

    def _split(self, users: Mapping[str, Account], view: View) -> None:
        self.queues, self.board = {}, []
        for job in self.heap:
            if view.live.get(job.job_id) is job:
                self._join(job, users, view)

    def _join(self, job: Waiting, users: Mapping[str, Account], view: View) -> None:
        assert self.queues is not None
        queue = self.queues.get(job.user)
        if queue is None:
            queue = self.queues[job.user] = Queue()
        heappush(queue.heap, job)
        queue.count += 1
        if queue.heap[0] is job:  # behind others it changes nothing: the board knows of the first
            self.note(users[job.user], view)


def _prune(heap: list[Waiting], view: View) -> None:
    heap[:] = [job for job in heap if view.live.get(job.job_id) is job]
    heapify(heap)

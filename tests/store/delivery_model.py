"""What the verbs of deliveries promise, in plain Python: one pool, times passed in."""

from dataclasses import dataclass, field
from math import ceil

from contracts.deliveries import Circuit

CIRCUIT = Circuit(trip=2)  # ten in a row hardly ever happen by chance
DONE = {"delivered", "exhausted", "gone", "endpoint_deleted", "superseded"}


@dataclass
class Row:
    """A delivery."""

    id: str
    endpoint: str
    job: str
    n: int
    strict: bool = False
    every: int | None = None
    state: str = "waiting"
    tries: int = 0
    base: int = 0
    due: int = 0
    after: int = 0
    claimed_until: int | None = None
    forget_at: int | None = None
    dead_at: int | None = None


@dataclass
class Receiver:
    """An endpoint."""

    row: int = 0
    gate: int = 0
    is_open: bool = False
    tat: float = 0
    most: int | None = None


@dataclass
class Order:
    """What of a job an endpoint was told."""

    mark: int = 0
    latest: str = ""
    seq: int = 0
    sent: int = 0
    chain: list[tuple[int, str]] = field(default_factory=list)


class Deliveries:
    """The model."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.receivers: dict[str, Receiver] = {}
        self.orders: dict[tuple[str, str], Order] = {}

    def order(self, row: Row) -> Order:
        return self.orders.setdefault((row.endpoint, row.job), Order())

    def plan(self, row: Row, now: int, last: bool) -> bool:
        if row.id in self.rows:
            return False
        order, row.due = self.order(row), now
        if (row.strict and row.n <= order.mark) or (row.every and row.n <= order.seq):
            return False
        if row.strict:
            order.mark = row.n
        if (row.every or last) and row.n > order.seq:
            self._supersede(order.latest, now)
            order.seq, order.latest = row.n, row.id if row.every else ""
        if row.every:
            row.due = max(now, order.sent + row.every)
        self.rows[row.id] = row
        self.receivers.setdefault(row.endpoint, Receiver())
        self._queue(row, row.due)
        return True

    def _supersede(self, name: str, now: int) -> None:
        row = self.rows.get(name)
        if row is None or row.state not in ("waiting", "blocked") or row.claimed_until is not None:
            return
        if row.tries:
            self.end(row, "superseded", now, 3600)
            return
        del self.rows[name]
        self._leave_chain(row, now)

    def _queue(self, row: Row, due: int) -> None:
        row.state, row.due = "waiting", due
        if row.strict:
            chain = self.order(row).chain
            chain[:] = sorted({*chain, (row.n, row.id)})
            if chain[0][1] != row.id:
                row.state, row.after = "blocked", due

    def _leave_chain(self, row: Row, now: int) -> None:
        chain = self.order(row).chain
        chain[:] = [link for link in chain if link[1] != row.id]
        head = self.rows[chain[0][1]] if chain else None
        if head is not None and head.state == "blocked":
            head.state, head.due = "waiting", max(now, head.after)

    def end(self, row: Row, state: str, now: int, keep_s: int) -> None:
        row.state, row.claimed_until, row.forget_at = state, None, now + keep_s * 1000
        if state in ("held", "exhausted", "gone"):
            row.dead_at = now
        if state != "held" and row.strict:
            self._leave_chain(row, now)

    def lapse(self, endpoint: str, now: int) -> None:
        """Claims that ran out are nobody's; noticed when somebody claims or holds."""
        for row in self.of(endpoint):
            if row.claimed_until is not None and row.claimed_until <= now:
                row.claimed_until = None

    def of(self, endpoint: str) -> list[Row]:
        return [row for row in self.rows.values() if row.endpoint == endpoint]

    def flight(self, endpoint: str) -> list[Row]:
        return [row for row in self.of(endpoint) if row.claimed_until is not None]

    def room(self, endpoint: str, room: int, most: int, gap: int, burst: int, now: int) -> int:
        """How many a claim must return at most, and returns if so many are due."""
        self.lapse(endpoint, now)
        receiver = self.receivers.get(endpoint, Receiver())
        if receiver.gate > now:
            return 0
        flying = len(self.flight(endpoint))
        room = min(room, (1 - flying) if receiver.is_open else most - flying)
        if gap:
            room = min(room, burst - ceil((max(receiver.tat, now) - now) / gap))
        return max(0, room)

    def due(self, endpoint: str, now: int) -> list[Row]:
        return [row for row in self.of(endpoint) if row.state == "waiting" and row.due <= now]

    def claimed(self, endpoint: str, ids: list[str], ends: int, now: int, gap: int) -> None:
        for name in ids:
            row = self.rows[name]
            row.due = row.claimed_until = ends
            if row.every:
                self.order(row).sent = now
        receiver = self.receivers.setdefault(endpoint, Receiver())
        receiver.tat = max(receiver.tat, now) + gap * len(ids) if gap else 0

    def settle(self, row: Row, ok: bool, due: int | None, now: int, gate: int) -> None:
        row.tries += 1
        row.claimed_until = None
        if due is not None and row.every and self.order(row).latest != row.id:
            self.end(row, "superseded", now, 3600)
        elif due is not None:
            row.due = due
        else:
            self.end(row, "delivered" if ok else "exhausted", now, 3600 if ok else 30 * 86400)
        self._judge(self.receivers[row.endpoint], ok, now, gate)

    def _judge(self, receiver: Receiver, ok: bool, now: int, gate: int) -> None:
        if ok:
            if receiver.is_open:
                receiver.gate = 0
            receiver.row, receiver.is_open = 0, False
            return
        if not (receiver.is_open and receiver.gate > now):
            receiver.row += 1
            if receiver.row >= CIRCUIT.trip:
                rest = min(CIRCUIT.cap_ms, CIRCUIT.base_ms * 2 ** (receiver.row - CIRCUIT.trip))
                receiver.is_open, receiver.gate = True, max(receiver.gate, now + rest)
        receiver.gate = max(receiver.gate, now + gate)

    def hold(self, endpoint: str, state: str, now: int) -> int:
        """Until nothing is left, as its caller repeats it."""
        self.lapse(endpoint, now)
        count = 0
        while waiting := [row for row in self.of(endpoint) if row.state == "waiting" and row.claimed_until is None]:
            for row in waiting:
                self.end(row, state, now, 30 * 86400 if state == "held" else 3600)
            count += len(waiting)
        return count

    def revive(self, endpoint: str, now: int) -> int:
        dead = sorted((row.dead_at, row.id) for row in self.of(endpoint) if row.dead_at is not None)
        for _, name in dead:
            self.revive_one(self.rows[name], now)
        return len(dead)

    def revive_one(self, row: Row, now: int) -> None:
        row.dead_at = row.forget_at = None
        row.base = row.tries
        self._queue(row, now)

    def forget(self, now: int) -> int:
        over = [row for row in self.rows.values() if row.forget_at is not None and row.forget_at <= now]
        for row in sorted(over, key=lambda row: (row.forget_at, row.id)):
            del self.rows[row.id]
            if row.strict:
                self._leave_chain(row, now)
        return len(over)

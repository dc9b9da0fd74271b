"""Webhook deliveries as the planner, the courier and readers speak of them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.events import WebhookFormat

CIRCUIT_ROW = 10  # failures in a row that open an endpoint's circuit
BUCKETS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 15_000, 30_000)
KEEP_SETTLED_S = 3_600  # long enough to know it again when a lost group is read once more
KEEP_DEAD_S = 30 * 86_400
FAILED = "failed"  # where an attempt without success is counted; the others by how long they took

CONTENT_TYPES: Mapping[WebhookFormat, str] = {
    "standard": "application/json",
    "flat": "application/json",
    "cloudevents": "application/cloudevents+json",
}


def content_of(form: WebhookFormat) -> dict[str, str]:
    """Return the field of a delivery that names the type of its bytes, {} for plain JSON.

    >>> content_of("flat"), content_of("cloudevents")
    ({}, {'content': 'application/cloudevents+json'})
    """
    kind = CONTENT_TYPES[form]
    return {} if kind == CONTENT_TYPES["standard"] else {"content": kind}


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """A delivery to store. `fields` are hash fields (exact bytes, ...); `due_ms` 0 means now.

    Args:
        endpoint: its name, the part of its id after `wh_`, or the name of an anonymous one.
        strict: nothing of the job with a higher sequence goes to this endpoint before this is done with. Hand
            over all that is wanted of the job so far; what was handed over before is left alone.
        interval_ms: of such deliveries of a job only the newest waits, and so long after the last one was sent.
        last: the job has ended: what waits with an interval is not wanted any more.
        bare: it says nothing that erasing the job would have to take back.
    """

    id: str
    fields: Mapping[str, str]
    endpoint: str
    tenant_id: str
    job_id: str
    sequence: int = 0
    due_ms: int = 0
    strict: bool = False
    interval_ms: int | None = None
    last: bool = False
    bare: bool = False

    def encode(self) -> dict[str, object]:
        """Return what `plan.lua` reads."""
        out: dict[str, object] = {
            "id": self.id, "due": self.due_ms, "e": self.endpoint, "t": self.tenant_id, "j": self.job_id,
            "n": self.sequence, "f": [text for pair in self.fields.items() for text in pair],
            "strict": self.strict or None, "every": self.interval_ms, "last": self.last or None,
            "bare": self.bare or None,
        }  # fmt: skip
        return {name: value for name, value in out.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DueEndpoints:
    """Endpoints (name, tenant) with something to do, longest waiting first; when the next one after them has."""

    now_ms: int
    next_due_ms: int | None
    endpoints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """How many deliveries of an endpoint a sender has room for, and what the endpoint takes of all senders together.

    `gap_ms` 0: no rate; else so long between two, of which `burst` may go at once.
    """

    endpoint: str
    room: int
    most: int
    gap_ms: float = 0.0
    burst: int = 1


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is ours until its claim runs out, with the fields that were asked for."""

    endpoint: str
    id: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Circuit:
    """An endpoint is left alone after `trip` failures in a row: for `base_ms`, doubled each time up to `cap_ms`."""

    base_ms: int = 30_000
    cap_ms: int = 600_000
    trip: int = CIRCUIT_ROW


CIRCUIT = Circuit()


def circuit_of(base_s: float) -> Circuit:
    """Return the circuit whose first pause is so long.

    >>> circuit_of(30)
    Circuit(base_ms=30000, cap_ms=600000, trip=10)
    """
    return Circuit(round(base_s * 1000), round(base_s * 20_000))


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an attempt says of its endpoint. `gate_ms`: how long nothing more is sent, as the receiver asked.

    `outcome` is a word of a small set, for metrics; `spread` is a factor around 1 that keeps endpoints apart.
    `is_ours`: it failed by our own fault and says nothing of the endpoint; it is counted among the outcomes only.
    """

    succeeded: bool
    outcome: str
    took_ms: int
    gate_ms: int = 0
    spread: float = 1.0
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """What follows from try number `attempt`. Without a next due time the delivery is done with, and kept for a time.

    `dead`: it was given up, and may be revived. `attempted` is None when nothing was sent.
    """

    id: str
    endpoint: str
    attempt: int
    fields: Mapping[str, str]
    attempted: Attempted | None
    next_due_ms: int | None = None
    keep_s: int = 0
    dead: bool = False

    def encode(self, circuit: Circuit) -> dict[str, object]:
        """Return what `settle_delivery.lua` reads."""
        out: dict[str, object] = {"e": self.endpoint, "try": self.attempt, "keep": self.keep_s}
        if self.next_due_ms is not None:
            out["due"] = self.next_due_ms
        if self.dead:
            out["dead"] = 1
        if (made := self.attempted) is not None:
            bucket = bucket_of(made.took_ms) if made.succeeded else FAILED
            if made.is_ours:
                return out | {"what": made.outcome}
            out |= {"ok": int(made.succeeded), "what": made.outcome, "bucket": bucket, "gate": made.gate_ms}
            out |= {"trip": circuit.trip, "base": circuit.base_ms, "cap": circuit.cap_ms, "spread": made.spread}
        return out


def bucket_of(took_ms: int) -> str:
    """Return the upper bound of the bucket in which a successful attempt is counted.

    >>> bucket_of(25), bucket_of(26), bucket_of(10**6)
    ('25', '50', 'inf')
    """
    return next((str(bound) for bound in BUCKETS_MS if took_ms <= bound), "inf")


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """How an endpoint does in one pool. `hours`: hour since 1970 -> bucket (or `failed`) -> attempts."""

    row: int = 0
    since_ms: int = 0
    ok_ms: int = 0
    gate_ms: int = 0
    is_open: bool = False  # its circuit
    waiting: int = 0
    in_flight: int = 0
    dead: int = 0
    oldest_due_ms: int | None = None
    hours: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """How the deliveries of a pool do. `overdue`: due for a minute, `behind_circuits`: where that is meant so."""

    waiting: int = 0
    in_flight: int = 0
    overdue: int = 0
    behind_circuits: int = 0
    circuits_open: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

"""What operators did to a pool as a whole; the subject is the operation, or the group."""

from typing import ClassVar, Literal

from contracts.events.root import Acted


class DeadLettersRequested(Acted):
    """admin: many dead letters are to be redriven, or discarded; each of them has an event of its own."""

    TYPE: ClassVar[str] = "dlq.requested"
    operation_id: str
    verb: Literal["redrive", "discard"]
    rate: float
    ids_count: int | None = None  # these; else all that the filter means
    pool: str | None = None
    tenant_id: str | None = None
    model: str | None = None
    code: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    reason: str = ""
    by: str = ""


class DeadLettersStopped(Acted):
    """admin: the operation is not gone on with; what it did stays."""

    TYPE: ClassVar[str] = "dlq.stopped"
    operation_id: str
    reason: str = ""
    by: str = ""


class ConsumerDropped(Acted):
    """admin: a group that nobody reads any more is gone from the log, which may be trimmed past it."""

    TYPE: ClassVar[str] = "consumer.dropped"
    group: str
    position: str  # that it had read
    pending: int
    reason: str = ""
    by: str = ""


class AuditAction(Acted):
    """operator: something was done that no other event tells of."""

    TYPE: ClassVar[str] = "audit.action"
    action: str
    target: str = ""
    count: int | None = None
    reason: str = ""
    by: str = ""

"""What is sealed now, and what follows from it for jobs. Pure."""

from collections.abc import Iterable, Sequence

from contracts.positions import entry_ms
from contracts.store.archive import Moved
from contracts.store.records import Record
from services.archivist.config import Pace

KIND_OF = {
    b"job.completed": "completed",
    b"job.failed": "failed",
    b"job.cancelled": "failed",
    b"job.expired": "failed",
    b"job.retried": None,
}  # by what retention calls them
# After these a body is as it may stay for good.
MAY_BE_LAST = frozenset({*KIND_OF, b"job.dead_lettered", b"job.metadata_changed", b"job.webhook_changed"})


def due(records: Sequence[Record], now_ms: int, pace: Pace, slack_ms: int = 0) -> Sequence[Record]:
    """Return what is to be sealed now of the entries that wait; none while they may wait for more.

    Args:
        slack_ms: until the next look; what would be too late by then is sealed now.
    """
    settled = [
        record for record in records[: pace.seal_entries] if entry_ms(record.position) <= now_ms - pace.settle_ms
    ]
    if not settled:
        return []
    is_full = len(settled) >= pace.seal_entries
    is_late = now_ms + slack_ms - entry_ms(settled[0].position) >= pace.seal_ms
    return settled if is_full or is_late else []


def moves(records: Iterable[Record]) -> list[Moved]:
    """Return the jobs whose run ended among the records, or began again; the last of each counts."""
    found: dict[str, Moved] = {}
    for record in records:
        kind = type_of(record)
        if kind in KIND_OF:
            job_id = subject_of(record)
            found[job_id] = Moved(job_id, KIND_OF[kind], entry_ms(record.position))
    return list(found.values())


def bodied(records: Iterable[Record]) -> list[str]:
    """Return the jobs whose bodies are kept beside these records."""
    return list(dict.fromkeys(subject_of(record) for record in records if type_of(record) in MAY_BE_LAST))


def type_of(record: Record) -> bytes:
    """Return the type of a record, b"" where it has none."""
    return _field(record, b"t").partition(b"/")[0]


def subject_of(record: Record) -> str:
    """Return what a record is about."""
    return _field(record, b"j").decode("utf-8", "replace")


def _field(record: Record, name: bytes) -> bytes:
    names = record.fields[::2]
    return record.fields[2 * names.index(name) + 1] if name in names else b""

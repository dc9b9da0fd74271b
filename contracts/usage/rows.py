"""What is counted for a tenant, a model and a day, and how such a row is written. Pure.

All numbers are whole: milliseconds, bytes, counts. A row is stored as a line with its model and its numbers in the
order of `METRICS`; a metric that comes later is added at the end, and is 0 in rows that were written before.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

METRICS = (
    "jobsCreated", "jobsCompleted", "jobsFailed", "jobsCancelled", "jobsExpired", "gpuMs", "loadMs",
    "artifactBytes", "deliveries", "deliveryAttempts",
)  # fmt: skip
(
    CREATED, COMPLETED, FAILED, CANCELLED, EXPIRED, GPU_MS, LOAD_MS, ARTIFACT_BYTES, DELIVERIES, DELIVERY_ATTEMPTS,
) = range(len(METRICS))  # fmt: skip

Row = list[int]


class Key(NamedTuple):
    """What a row is of. `day`: days since 1970, UTC."""

    day: int
    tenant_id: str
    model: str  # name@version; "" of what belongs to no job


def empty() -> Row:
    """Return a row of nothing."""
    return [0] * len(METRICS)


def write_row(row: Sequence[int]) -> str:
    """Write a row.

    >>> write_row([1, 0, 3])
    '1 0 3'
    """
    return " ".join(map(str, row))


def read_row(text: str) -> Row:
    """Read a row; of a newer version's, what this one knows. Raises ValueError.

    >>> read_row("1 2")
    [1, 2, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    row = list(map(int, text.split(" ")))
    return row if len(row) == len(METRICS) else [*row, *empty()][: len(METRICS)]


def read_rows(day: int, tenant_id: str, text: str) -> Iterator[tuple[Key, Row]]:
    """Read the lines of a tenant and a day, one for each model; what is no row has zeros: an audit sees it.

    >>> [(key.model, row[:2]) for key, row in read_rows(1, "t_a", "draw@1 3 2\\necho@1 x")]
    [('draw@1', [3, 2]), ('echo@1', [0, 0])]
    """
    for line in text.split("\n"):
        model, _, numbers = line.partition(" ")
        try:
            row = read_row(numbers)
        except ValueError:
            row = empty()
        yield Key(day, tenant_id, model), row


def add(total: Row, rows: Iterable[Sequence[int]]) -> None:
    """Add rows to `total`."""
    for row in rows:
        total[:] = map(operator.add, total, row)

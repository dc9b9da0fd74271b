"""The line through measured peaks: base + k x product of the inputs, a squared term where that is off, else a table.

Pure. Promises: the accepted line is nowhere off by more than 5 % of a measured peak and never falls. It reaches half as
far again as the largest point if it has a point to spare and saw the inputs doubled at least, else no further than it.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

WORST_ERROR = 0.05
REACH = 1.5  # of the largest measured product: beyond it nothing is read off the line
_MOST = float(1 << 62)

Inputs = Mapping[str, float]
Measured = tuple[Inputs, int | None]  # a point and its peak, None where it ran out of memory
Kind = Literal["flat", "linear", "squared", "table"]
_LINES: tuple[tuple[Kind, tuple[int, ...]], ...] = (
    ("linear", (0, 1)), ("flat", (0,)), ("squared", (0, 1, 2)), ("squared", (0, 2)),
)  # fmt: skip


class Fit(BaseModel):
    """What was made of the points. The coefficients are bytes for each unit of the product of the inputs."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")
    kind: Kind
    inputs: tuple[str, ...] = ()
    base_bytes: float = 0.0
    per_unit: float = 0.0
    per_square: float = 0.0
    worst_error: float = 0.0  # at a measured point, as a ratio
    reaches: float = 0.0  # the largest product that may be read off
    out_of_memory_from: float | None = None  # the smallest product that ran out of memory
    largest_peak_bytes: int = 0

    def peak_bytes(self, x: float) -> int:
        """Return the peak at a product of inputs."""
        return ceil(min(_MOST, max(0.0, self.base_bytes + x * (self.per_unit + x * self.per_square))))


def fit_points(inputs: tuple[str, ...], points: Sequence[Measured]) -> Fit:
    """Fit what was measured. Raises ValueError if no point has a peak."""
    samples = [(product_of(inputs, values), peak) for values, peak in points if peak is not None]
    if not samples:
        raise ValueError("no point has a peak")
    failed = [product_of(inputs, values) for values, peak in points if peak is None]
    line = next(_lines(samples), Fit(kind="table"))
    return line.model_copy(
        update={
            "inputs": inputs,
            "out_of_memory_from": min(failed, default=None),
            "largest_peak_bytes": max(peak for _, peak in samples),
        }
    )


def product_of(names: Sequence[str], values: Inputs) -> float:
    """Return the product of these inputs.

    >>> product_of(("height", "width"), {"width": 64, "height": 32}), product_of((), {})
    (2048.0, 1.0)
    """
    x = 1.0
    for name in names:
        x = min(_MOST, x * values[name])
    return x


def dominates(inputs: Inputs, others: Inputs) -> bool:
    """Whether `inputs` are at least as large in everything."""
    return all(value >= others[name] for name, value in inputs.items())


def _lines(samples: Sequence[tuple[float, int]]) -> Iterator[Fit]:
    """Give the lines that are near enough, the simplest first."""
    products = {x for x, _ in samples}
    for kind, powers in _LINES:
        line = _line(kind, powers, samples) if len(products) >= len(powers) else None
        worst_error = max(abs(line.peak_bytes(x) - peak) / max(1, peak) for x, peak in samples) if line else 1.0
        if line is not None and worst_error <= WORST_ERROR:
            is_sure = len(products) > len(powers) and max(products) >= 2 * min(products)
            reaches = max(products) * (REACH if is_sure else 1.0)
            yield line.model_copy(update={"worst_error": worst_error, "reaches": reaches})


def _line(kind: Kind, powers: Sequence[int], samples: Sequence[tuple[float, int]]) -> Fit | None:
    """Find the coefficients with the least squares of relative errors; None where the line would fall."""
    if kind == "flat":
        return Fit(kind=kind, base_bytes=max(peak for _, peak in samples))
    scale = max(x for x, _ in samples) or 1.0
    rows = [[(x / scale) ** power / max(1, peak) for power in powers] for x, peak in samples]
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(len(powers))] for i in range(len(powers))]
    found = _gauss(matrix, [sum(row[i] for row in rows) for i in range(len(powers))])
    if found is None or any(value < 0 for value in found[1:]):
        return None
    by_power = {power: value / scale**power for power, value in zip(powers, found, strict=True)}
    return Fit(kind=kind, base_bytes=by_power[0], per_unit=by_power.get(1, 0.0), per_square=by_power.get(2, 0.0))


def _gauss(matrix: list[list[float]], target: list[float]) -> list[float] | None:
    """Solve a small system; None where it has no single answer."""
    n, rows = len(target), [[*row, value] for row, value in zip(matrix, target, strict=True)]
    for i in range(n):
        best = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        pivot = rows[i][i]
        if abs(pivot) <= 1e-12 * max(1e-300, *(abs(value) for value in matrix[i])):
            return None
        rows[i] = [value / pivot for value in rows[i]]
        for k in range(n):
            if k != i:
                rows[k] = [a - rows[k][i] * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[n] for row in rows]

"""Samples to figures: quantiles, ratios of paired rounds, rows of the table. Pure.

Promises that no figure is rounded in the product's favour: what should be high is cut down, what should be low up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `holds` is None where no bar was set."""

    what: str
    product: str
    baseline: str
    ratio: str = ""
    bar: str = ""
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Lowest, median and highest of several rounds."""

    low: float
    mid: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Summarise rounds; at least one is needed."""
    return Spread(min(values), median(values), max(values))


def ratios(product: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Compare round by round, as both of a pair met the same noise."""
    return spread([ours / theirs for ours, theirs in zip(product, baseline, strict=True)])


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed.

    >>> quantile([1, 2, 3, 4], 0.5), quantile([1, 2, 3, 4], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def cut_down(value: float, digits: int = 2) -> str:
    """Write a figure that should be high.

    >>> cut_down(0.4999), cut_down(2310.9, 0)
    ('0.49', '2,310')
    """
    return f"{math.floor(_steps(value, digits)) / 10**digits:,.{digits}f}"


def cut_up(value: float, digits: int = 2) -> str:
    """Write a figure that should be low.

    >>> cut_up(5.001), cut_up(0.5)
    ('5.01', '0.50')
    """
    return f"{math.ceil(_steps(value, digits)) / 10**digits:,.{digits}f}"


def _steps(value: float, digits: int) -> float:
    # 0.29 * 100 is 28.999999999999996: what lies within a millionth of a step is that step
    scaled = value * 10**digits
    return float(round(scaled)) if abs(scaled - round(scaled)) < 1e-6 else scaled


def high(values: Spread, unit: str = "", digits: int = 0) -> str:
    """Write the median and the range of figures that should be high."""
    low, mid, top = (cut_down(value, digits) for value in (values.low, values.mid, values.high))
    return f"{mid}{unit} ({low} to {top})"


def low(values: Spread, unit: str = "", digits: int = 2) -> str:
    """Write the median and the range of figures that should be low."""
    least, mid, top = (cut_up(value, digits) for value in (values.low, values.mid, values.high))
    return f"{mid}{unit} ({least} to {top})"

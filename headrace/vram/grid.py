"""Which parameters an audit measures, in which order. Pure.

Promises: ascending by the product of all inputs, so that what one run leaves in a runtime's arena never counts for a
smaller one after it; a point at least as large in everything as one that ran out of memory is not tried.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from contracts.model_spec import ModelSpec, check_input
from contracts.profile_fit import Inputs, dominates, product_of

MOST_POINTS = 200
Number = int | float
Grid = Mapping[str, Sequence[Number]]


class BadGrid(ValueError):
    """The grid cannot be measured; the text says why, a line for each fault."""


def read_grid(options: Iterable[str]) -> dict[str, tuple[Number, ...]]:
    """Read `--grid width=512,1024`. Raises BadGrid.

    >>> read_grid(["size=512,256", "strength=0.5"])
    {'size': (256, 512), 'strength': (0.5,)}
    """
    grid: dict[str, tuple[Number, ...]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        try:
            found = [_number(value) for value in values.split(",")]
        except ValueError:
            found = []
        if not name or not equals or not found or min(found) <= 0:
            raise BadGrid(f"--grid {option}: write an input and numbers above 0, such as size=256,512")
        if name in grid:
            raise BadGrid(f"--grid {option}: {name} is given twice")
        grid[name] = tuple(sorted(set(found)))
    return grid


def points_of(grid: Grid) -> list[dict[str, Number]]:
    """Return the points in the order in which they are measured.

    >>> [(point["size"], point["batch"]) for point in points_of({"size": (1, 4), "batch": (1, 2)})]
    [(1, 1), (1, 2), (4, 1), (4, 2)]
    """
    names = sorted(grid)
    points = [dict(zip(names, values, strict=True)) for values in product(*(grid[name] for name in names))]
    return sorted(points, key=lambda point: (product_of(names, point), [point[name] for name in reversed(names)]))


def check(
    spec: ModelSpec, points: Sequence[Mapping[str, Number]], prompt: str | None, others: Mapping[str, object]
) -> None:
    """Hold every point against the schema of the model. Raises BadGrid with every fault."""
    if len(points) > MOST_POINTS:
        raise BadGrid(f"{len(points)} points; an audit measures {MOST_POINTS} at most")
    faults = {
        f"{fault.pointer} {fault.message}"
        for point in points
        for fault in check_input(spec, prompt, {**others, **point})
    }
    if faults:
        raise BadGrid("\n".join(sorted(faults)))


def is_hopeless(point: Inputs, failed: Iterable[Inputs]) -> bool:
    """Whether a smaller point has run out of memory already."""
    return any(dominates(point, one) for one in failed)


def _number(text: str) -> Number:
    value = float(text)
    if not abs(value) < 1e18:
        raise ValueError(text)
    return int(value) if value.is_integer() else value

"""Which points an audit measures, and in which order."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.profile_fit import product_of
from headrace.vram.grid import BadGrid, points_of, read_grid

GRIDS = st.dictionaries(
    st.sampled_from(["width", "height", "batch"]),
    st.lists(st.integers(1, 500), min_size=1, max_size=4, unique=True),
    max_size=3,
)


@given(GRIDS)
def test_every_point_is_measured_once_and_nothing_small_after_something_large(grid: dict[str, list[int]]) -> None:
    points = points_of(grid)

    assert len({tuple(sorted(point.items())) for point in points}) == len(points)
    assert len(points) == prod(len(values) for values in grid.values())
    products = [product_of(sorted(grid), point) for point in points]
    assert products == sorted(products)


@pytest.mark.parametrize("option", ["size", "size=", "=1", "size=a", "size=0", "size=-1", "size=1,nan", "size=inf"])
def test_a_grid_that_is_none_says_what_to_write(option: str) -> None:
    with pytest.raises(BadGrid, match="write an input and numbers above 0, such as size=256,512"):
        read_grid([option])


def test_an_input_is_given_once() -> None:
    with pytest.raises(BadGrid, match="size is given twice"):
        read_grid(["size=1", "size=2"])

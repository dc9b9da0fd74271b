"""The table of README.md: figures are never rounded in the product's favour, and only its own place is rewritten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import Row, cut_down, cut_up, quantile
from benchmarks.http_load import whole_answer
from benchmarks.payload import PAYLOAD_BYTES, payload
from benchmarks.report import section, splice, table
from contracts.api import GenerationJobData

FIGURES = st.floats(min_value=0, max_value=1e9)


def value_of(text: str) -> float:
    return float(text.replace(",", ""))


@given(FIGURES, st.integers(0, 4))
def test_a_figure_that_should_be_high_is_never_written_higher(value: float, digits: int) -> None:
    assert value_of(cut_down(value, digits)) <= value * (1 + 1e-9) + 1e-6


@given(FIGURES, st.integers(0, 4))
def test_a_figure_that_should_be_low_is_never_written_lower(value: float, digits: int) -> None:
    assert value_of(cut_up(value, digits)) >= value * (1 - 1e-9) - 1e-6


@given(st.lists(FIGURES, min_size=1), st.floats(min_value=0.01, max_value=1))
def test_a_quantile_is_a_value_that_enough_others_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    row = Row("what", "1", "2", "0.50", "at least 0.5", False)
    readme = "before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n"

    once = splice(readme, section([row], "a machine", "2026-11-30", "make bench"))
    twice = splice(once, section([row], "a machine", "2026-11-30", "make bench"))

    assert once == twice
    assert once.startswith("before\n<!-- bench -->\n")
    assert once.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in once
    assert "at least 0.5: **missed**" in table([row])


def test_a_text_without_both_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="bench"):
        splice("<!-- bench --> no end", "new")


def test_the_payload_is_as_long_as_the_table_says_and_is_a_valid_request() -> None:
    for body in (payload(), payload("stamp", ms=20)):
        assert len(body) == PAYLOAD_BYTES
        GenerationJobData.model_validate_json(body)


@pytest.mark.parametrize("cut", range(1, 60))
def test_the_load_generator_waits_for_the_last_byte_of_an_answer(cut: int) -> None:
    answer = b'HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n{"id":"x"}'
    assert whole_answer(answer[:cut]) == (201 if cut >= len(answer) else 0)

"""What a caller is told about inputs that do not fit the model.

Field case 7: bad input is refused before the queue, each fault with the path of its field.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.model_inputs import MAX_FAULTS, BadSchema, InputSchema, check_input, compile_schema, draw_seed

DOCUMENT: dict[str, Any] = {
    "type": "object",
    "required": ["prompt", "mode"],
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": "string", "pattern": r"\S", "maxLength": 10},
        "mode": {"enum": ["fast", "slow"]},
        "steps": {"type": "integer", "minimum": 1, "maximum": 150},
        "seed": {"type": "integer", "minimum": 5, "maximum": 9},
        "size": {"type": "integer", "multipleOf": 64},
        "tags": {"type": "array", "maxItems": 2, "uniqueItems": True, "items": {"type": "string"}},
        "camera": {"type": "object", "additionalProperties": False, "properties": {"a/b~c": {"const": 1}}},
        "fill": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}


def schema(document: object = DOCUMENT) -> InputSchema:
    return compile_schema(json.dumps(document).encode())


def found(prompt: object, fields: dict[str, Any]) -> list[tuple[str, str]]:
    return [(fault.pointer, fault.code) for fault in check_input(schema(), prompt, fields)]


def test_inputs_that_fit_have_no_faults() -> None:
    assert found("a boat", {"mode": "fast", "steps": 150, "fill": None, "camera": {"a/b~c": 1}}) == []


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"steps": 151}, "/input/steps", "too_large"),
        ({"steps": 0}, "/input/steps", "too_small"),
        ({"steps": "many"}, "/input/steps", "wrong_type"),
        ({"steps": True}, "/input/steps", "wrong_type"),
        ({"steps": 1.5}, "/input/steps", "wrong_type"),
        ({"size": 100}, "/input/size", "not_a_multiple"),
        ({"mode": "warp"}, "/input/mode", "not_allowed"),
        ({"tags": ["a", "b", "c"]}, "/input/tags", "too_long"),
        ({"tags": ["a", "a"]}, "/input/tags", "not_unique"),
        ({"tags": ["a", 1]}, "/input/tags/1", "wrong_type"),
        ({"camera": {"a/b~c": 2}}, "/input/camera/a~1b~0c", "not_allowed"),
        ({"camera": {"q": 2}}, "/input/camera/q", "unknown_field"),
        ({"fill": 1}, "/input/fill", "not_allowed"),
        ({"stepz": 1}, "/input/stepz", "unknown_field"),
    ],
)
def test_a_fault_names_its_field_and_its_reason(fields: dict[str, Any], pointer: str, code: str) -> None:
    assert found("a boat", {"mode": "fast", **fields}) == [(pointer, code)]


@pytest.mark.parametrize(
    ("prompt", "code"),
    [(None, "missing"), ("", "blank"), (" \n", "blank"), ("x" * 11, "too_long"), (7, "wrong_type")],
)
def test_a_wrong_prompt_is_a_fault_at_the_prompt(prompt: object, code: str) -> None:
    assert found(prompt, {"mode": "fast"}) == [("/prompt", code)]


def test_a_missing_field_is_named() -> None:
    assert found("a boat", {}) == [("/input/mode", "missing")]


def test_a_prompt_inside_input_is_a_fault_whatever_stands_on_top() -> None:
    for prompt in ("a boat", None):
        assert found(prompt, {"mode": "fast", "prompt": "another"}) == [("/input/prompt", "not_allowed")]


def test_limits_are_told_and_values_are_not_repeated() -> None:
    faults = check_input(schema(), "hunter2", {"mode": "hunter2", "steps": 151, "fill": ["hunter2"]})

    assert "must be 150 or less" in [fault.message for fault in faults]
    assert all("hunter2" not in fault.message for fault in faults)


def test_an_answer_has_a_limited_number_of_faults() -> None:
    faults = check_input(schema(), "a boat", {f"field_{n}": n for n in range(10_000)})

    assert len(faults) == MAX_FAULTS


def test_nesting_without_end_is_a_fault_and_no_crash() -> None:
    """Field case 2: deep JSON is an answer with a pointer, never a 500."""
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    assert found("a boat", {"mode": "fast", "fill": deep}) == [("/input", "too_deep")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", '"type": "object"'),
        (b'{"type": "string"}', '"type": "object"'),
        (b'{"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}', "2020-12"),
        (b'{"type": "object", "properties": {"a": {"type": "number of"}}}', "not a usable schema"),
        (b'{"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}', "not a usable schema"),
        (b'{"type": "object", "$ref": "http://127.0.0.1:1/a.json"}', "another document"),
        (b'{"type": "object", "$ref": "file:///etc/hostname"}', "another document"),
        (b'{"type": "object", "$ref": "#/$defs/absent"}', "not a usable schema"),
        (
            b'{"type": "object", "properties": {"seed": {"type": "integer", "minimum": 2, "maximum": 1}}}',
            "seed",
        ),
        (b'{"type": "object", "properties": {"seed": {"type": "integer", "minimum": 1e999}}}', ""),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(text: bytes, words: str) -> None:
    with pytest.raises(BadSchema) as caught:
        compile_schema(text)

    assert words in str(caught.value)


@given(st.integers(0, 2**64))
def test_a_drawn_seed_always_fits_the_schema(random_bits: int) -> None:
    fields = draw_seed(schema(), {"mode": "fast"}, random_bits)

    assert check_input(schema(), "a boat", fields) == ()
    assert fields == draw_seed(schema(), {"mode": "fast"}, random_bits)


def test_every_seed_of_the_range_can_be_drawn() -> None:
    assert {draw_seed(schema(), {}, bits)["seed"] for bits in range(100)} == {5, 6, 7, 8, 9}


def test_a_given_seed_stays_and_a_model_without_seed_gets_none() -> None:
    assert draw_seed(schema(), {"seed": 7}, 0) == {"seed": 7}
    assert draw_seed(schema({"type": "object"}), {"a": 1}, 0) == {"a": 1}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(prompt=_JSON, fields=st.dictionaries(st.sampled_from([*DOCUMENT["properties"], "x"]), _JSON))
def test_whatever_a_caller_sends_every_fault_points_into_the_request(prompt: object, fields: dict[str, Any]) -> None:
    for fault in check_input(schema(), prompt, fields):
        assert fault.pointer == "/prompt" or fault.pointer.startswith("/input")
        assert fault.code.replace("_", "").isalpha()

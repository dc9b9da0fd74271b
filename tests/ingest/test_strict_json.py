"""Bytes to JSON objects."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.edge.strict_json import MAX_DEPTH, BadJson, parse_object

ODD = {
    "10,000-fold nested arrays": (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "too_deep"),
    "one level too deep": (b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too_deep"),
    "duplicate keys": (b'{"a":1,"a":1}', "duplicate_key"),
    "duplicate keys spelled differently": (b'{"a":1,"\\u0061":1}', "duplicate_key"),
    "duplicate keys deep inside": (b'{"a":[{"b":{"c":1,"c":2}}]}', "duplicate_key"),
    "NaN": (b'{"a":NaN}', "syntax"),
    "Infinity": (b'{"a":-Infinity}', "syntax"),
    "overflowing float": (b'{"a":1e999}', "number_out_of_range"),
    "lone surrogate": (b'{"a":"\\ud800"}', "lone_surrogate"),
    "lone surrogate in a key": (b'{"\\uDFFF":1}', "lone_surrogate"),
    "integer with 5,000 digits": (b'{"a":' + b"7" * 5_000 + b"}", "number_out_of_range"),
    "integer of 65 bits": (b'{"a":18446744073709551616}', "number_out_of_range"),
    "byte order mark": (b"\xef\xbb\xbf{}", "syntax"),
    "latin-1": ('{"a":"é"}'.encode("latin-1"), "not_utf8"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not_utf8"),
    "control character": (b'{"a":"\x01"}', "syntax"),
    "trailing bytes": (b"{}{}", "syntax"),
    "single quotes": (b"{'a':1}", "syntax"),
    "comment": (b"{} // hi", "syntax"),
    "empty": (b"", "syntax"),
    "an array": (b"[]", "not_an_object"),
    "null": (b"null", "not_an_object"),
    "a million values": (b'{"a":[' + b"0," * 500_000 + b"0]}", "too_complex"),
}


@pytest.mark.parametrize(("raw", "code"), ODD.values(), ids=ODD.keys())
def test_json_with_two_meanings_is_refused(raw: bytes, code: str) -> None:
    """Field case 2: deep or odd JSON."""
    with pytest.raises(BadJson) as caught:
        parse_object(raw)

    assert caught.value.code == code


def test_depth_up_to_the_limit_is_read() -> None:
    raw = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"

    assert list(parse_object(raw)) == ["a"]


def test_brackets_inside_strings_do_not_count_as_depth() -> None:
    assert parse_object(b'{"a":"' + b"[" * 5_000 + b'"}') == {"a": "[" * 5_000}


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse_object(b'{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_the_smallest_and_largest_integer_stay_integers() -> None:
    assert parse_object(b'{"a":9223372036854775807,"b":-9223372036854775808}') == {
        "a": 2**63 - 1,
        "b": -(2**63),
    }


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), JSON_VALUES, max_size=5))
def test_every_ordinary_object_is_read_as_it_was_written(fields: dict[str, object]) -> None:
    assert parse_object(orjson.dumps(fields)) == fields

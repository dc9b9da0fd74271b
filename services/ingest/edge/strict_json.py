"""Bytes to a JSON object, with one meaning only.

Promises: what is accepted means the same to every JSON reader (no duplicate keys, no NaN, no lone
surrogates, no byte order mark, no number that overflows), and what is refused costs little: the number of
values is bounded before anything is parsed, the depth before anything walks the result. Does not look at
names or meanings of fields. The standard parser is used because it alone lets us see duplicate keys and
integers as they were written.
"""

import json
import math

import orjson

MAX_DEPTH = 32
MAX_VALUES = 50_000
INTEGER_LIMIT = 1 << 63

Json = dict[str, object] | list[object]


class BadJson(ValueError):
    """The bytes are not a JSON object with one meaning; `code` says why in one word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def parse_object(raw: bytes) -> dict[str, object]:
    """Read one JSON object.

    Raises BadJson: `syntax`, `not_utf8`, `lone_surrogate`, `too_complex`, `too_deep`, `duplicate_key`,
    `number_out_of_range` or `not_an_object`.

    >>> parse_object(b'{"steps": 30}')
    {'steps': 30}
    """
    bracket_count = raw.count(b"[") + raw.count(b"{")
    if bracket_count + raw.count(b",") > MAX_VALUES:
        raise BadJson("too_complex", f"more than {MAX_VALUES} values")
    value = _decode(raw)
    if not isinstance(value, dict):
        raise BadJson("not_an_object", "the body must be one JSON object")
    if bracket_count > MAX_DEPTH:
        _check_depth(value)
    if b"\\u" in raw:
        _check_surrogates(raw)
    return value


def _decode(raw: bytes) -> object:
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadJson("not_utf8", f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise BadJson("syntax", f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise BadJson("too_deep", f"nested deeper than {MAX_DEPTH} levels") from None


def _check_depth(root: Json) -> None:
    level: list[Json] = [root]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    raise BadJson("too_deep", f"nested deeper than {MAX_DEPTH} levels")


def _values(container: Json) -> list[object]:
    return list(container.values()) if isinstance(container, dict) else container


def _check_surrogates(raw: bytes) -> None:
    # Half a surrogate pair cannot be written as UTF-8: it would fail later, far from the caller.
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise BadJson("lone_surrogate", "a \\u escape is half of a surrogate pair") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadJson("duplicate_key", "a key occurs twice in one object")
    return fields


def _integer(digits: str) -> int:
    # The length first: converting 5,000 digits is refused by Python, and slow where it is not.
    if len(digits) <= 20 and -INTEGER_LIMIT <= (number := int(digits)) < INTEGER_LIMIT:
        return number
    raise BadJson("number_out_of_range", "integers must fit into 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadJson("number_out_of_range", "a number is too large")
    return number


def _constant(name: str) -> object:
    raise BadJson("syntax", f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer, parse_float=_float, parse_constant=_constant)

"""JSON as the server reads it: what would come out as another value there is an error here. Pure."""

import json

_LONGEST_WHOLE = 20  # digits of a 64-bit number with its sign


def read_json(text: str | bytes) -> object:
    """Read JSON. Raises ValueError, also for a number that does not fit into 64 bits and for what nobody can nest."""
    try:
        return json.loads(text, parse_int=_whole, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _whole(text: str) -> int:
    number = int(text) if len(text) <= _LONGEST_WHOLE else 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{text[:_LONGEST_WHOLE]} does not fit into 64 bits")
    return number


def _no_number(text: str) -> object:
    raise json.JSONDecodeError("is not JSON", text, 0)

"""What author code hands over, in the form in which it may leave: strict JSON, short texts, finite numbers. Pure.

Promises: what has no place in JSON, is too long or is odd is refused or cut here, as PROTOCOL.md says; an odd value in
telemetry never ends a job. Standard library only.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .memory_errors import text_of

DATA_LIMIT_BYTES = 16 << 10  # of one event's data
TEXT_LIMIT_CHARS = 1000
LONG_NUMBER = re.compile(r"\d{19}")  # an integer beyond 64 bits has at least these digits
PICTURES = (
    (b"\x89PNG", ".png"),
    (b"RIFF", ".webp"),
    (b"\xff\xd8", ".jpg"),
    (b"GIF8", ".gif"),
)


class Encoded:
    """JSON that is ready: between two jobs nothing is encoded twice."""

    def __init__(self, body: bytes) -> None:
        self.body = body


class NotSerializable(Exception):
    """A value has no place in JSON."""


def encode(frame: dict[str, Any]) -> bytes:
    """Return the JSON of a frame; an encoded result is put in as it is."""
    result = frame.pop("result", None)
    body = _FRAMES.encode(frame).encode("utf-8", "replace")
    return body if result is None else body[:-1] + b',"result":' + result.body + b"}"


def to_json(value: Any) -> bytes:
    """Encode `value` strictly; beyond JSON's own types only numpy and torch scalars and dates are taken."""
    try:
        text = _STRICT.encode(value)
        if LONG_NUMBER.search(text):
            json.loads(text, parse_int=_int64)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # also circular, NaN, lone surrogates
        raise NotSerializable(clean(error)) from None


def scalar(value: Any) -> Any:
    """Return the JSON form of a value that json does not know; raise TypeError if it has none."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON; write bytes and arrays with job.artifact()")


_STRICT = json.JSONEncoder(default=scalar, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_FRAMES = json.JSONEncoder(default=scalar, ensure_ascii=False, separators=(",", ":"))


def _int64(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:
        raise ValueError("an integer of more than 64 bits is not portable JSON")
    return int(digits)


def picture_ending(data: Any) -> str:
    """Return the file ending for picture bytes, by their first ones."""
    return next((ending for start, ending in PICTURES if bytes(data[:4]).startswith(start)), "")


def event_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return `data` if it fits an event, else a mark: telemetry that is too big or odd must not end a job."""
    try:
        size = len(to_json(data))
    except NotSerializable:
        return {"truncated": True, "reason": "not_serializable"}
    return data if size <= DATA_LIMIT_BYTES else {"truncated": True, "reason": "too_large", "bytes": size}


def clean(text: object, limit_chars: int = TEXT_LIMIT_CHARS) -> str:
    """Return `text` as a short string that every JSON parser takes."""
    return text_of(text)[:limit_chars].encode("utf-8", "replace").decode()


def pixels(number: Any) -> int | None:
    """Return the side of a picture, or None for what can be none: it is for a record, and no reason to end a job.

    >>> pixels(512), pixels(512.0), pixels(-1), pixels(10**30), pixels("512")
    (512, 512, None, None, None)
    """
    number = finite(number)
    return int(number) if number is not None and 0 < number < 1 << 31 else None


def finite(number: Any) -> Any:
    """Return `number` (numpy scalars as Python's own), or None where JSON has no word for it."""
    try:
        number = number.item() if hasattr(number, "item") else number
        return number if isinstance(number, (int, float)) and math.isfinite(number) else None
    except Exception:  # of several elements, on a device, or an integer that no float can hold
        return None

"""The body of a job as it lies in the store: lines of JSON, the spec first, then what workers added.

Promises: a line that cannot be read is skipped and never hides the others; a body that is gone reads as empty.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BodyLines:
    """`spec` as submitted (empty when erased), the result (None before completion), error texts by attempt."""

    spec: JsonObject = field(default_factory=dict)
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = field(default_factory=dict)


def read_lines(raw: bytes) -> BodyLines:
    """Read a job's body."""
    spec: JsonObject = {}
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = {}
    for number, line in enumerate(raw.split(b"\n") if raw else ()):
        fields = _object(line)
        if number == 0:
            spec = fields
        elif isinstance(fields.get("result"), dict):
            result = fields["result"]
        elif isinstance(fields.get("error"), dict):
            errors[int(fields["error"].get("attempt") or 0)] = fields["error"]
    return BodyLines(spec, result, errors)


def _object(line: bytes) -> JsonObject:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}

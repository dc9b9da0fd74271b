"""The body of a job as it lies in the store: lines of JSON, the spec first, then what workers and callers added.

Promises: a line that cannot be read is skipped and never hides the others; a body that is gone reads as empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BodyLines:
    """`spec` as submitted, with the metadata it has now (empty when erased), the result (None before completion), error
    texts by attempt, how often the metadata were changed.
    """

    spec: JsonObject = field(default_factory=dict)
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = field(default_factory=dict)
    metadata_changes: int = 0


def read_lines(raw: bytes, sequence: int | None = None) -> BodyLines:
    """Read a job's body; `sequence`: with the metadata that it had after this event."""
    spec: JsonObject = {}
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = {}
    changes = 0
    for number, line in enumerate(raw.split(b"\n") if raw else ()):
        fields = _object(line)
        if number == 0:
            spec = fields
        elif isinstance(fields.get("result"), dict):
            result = fields["result"]
        elif isinstance(fields.get("error"), dict):
            errors[int(fields["error"].get("attempt") or 0)] = fields["error"]
        elif isinstance(fields.get("metadata"), dict):
            changes += 1
            if spec and (sequence is None or fields.get("sequence", 0) <= sequence):
                spec = spec | {"metadata": fields["metadata"]}
    return BodyLines(spec, result, errors, changes)


def metadata_line(metadata: Mapping[str, str], sequence: int) -> bytes:
    """Write what the caller's metadata are from event `sequence` on."""
    return b"\n" + orjson.dumps({"metadata": metadata, "sequence": sequence})


def _object(line: bytes) -> JsonObject:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}

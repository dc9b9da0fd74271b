"""The body of a job as it lies in the store: lines of JSON, the spec first, then what workers and callers added.

Promises: a line that cannot be read is skipped and never hides the others; a body that is gone reads as empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

JsonObject = dict[str, Any]

_CHANGEABLE = {"metadata": dict, "webhookEvents": list}


@dataclass(frozen=True, slots=True)
class BodyLines:
    """`spec` as submitted, with the metadata and webhook events it has now (empty when erased), the result (None before
    completion), error texts by attempt, how often the caller changed it, digests of the input files by JSON Pointer.
    """

    spec: JsonObject = field(default_factory=dict)
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = field(default_factory=dict)
    changes: int = 0
    files: dict[str, str] = field(default_factory=dict)


def read_lines(raw: bytes, sequence: int | None = None) -> BodyLines:
    """Read a job's body; `sequence`: as the caller wanted it to be after this event."""
    spec: JsonObject = {}
    result: JsonObject | None = None
    errors: dict[int, JsonObject] = {}
    changes, files = 0, dict[str, str]()
    for number, line in enumerate(raw.split(b"\n") if raw else ()):
        fields = _object(line)
        if number == 0:
            spec = fields
        elif isinstance(fields.get("result"), dict):
            result, files = fields["result"], fields.get("files") or {}
        elif isinstance(fields.get("error"), dict):
            errors[int(fields["error"].get("attempt") or 0)] = fields["error"]
        elif changed := {
            name: fields[name] for name, kind in _CHANGEABLE.items() if isinstance(fields.get(name), kind)
        }:
            changes += 1
            if spec and (sequence is None or fields.get("sequence", 0) <= sequence):
                spec = spec | changed
    return BodyLines(spec, result, errors, changes, files)


def change_line(changed: Mapping[str, object], sequence: int) -> bytes:
    """Write what the caller wants from event `sequence` on: `metadata` or `webhookEvents`."""
    return b"\n" + orjson.dumps({**changed, "sequence": sequence})


def _object(line: bytes) -> JsonObject:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}

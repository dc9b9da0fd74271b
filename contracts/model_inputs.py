"""The inputs of a model: check what a caller sent before anything is queued, and say what to change.

A model's JSON Schema (draft 2020-12) describes `{"prompt": ..., **input}`. Promises: a schema is compiled
once; patterns run in linear time; nothing is ever fetched; a fault names its place as the caller wrote it
(`/prompt` or `/input/...`) and never repeats the caller's value. Does not fill in defaults: pipelines do.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn

import jsonschema_rs

from contracts import file_inputs
from contracts.file_inputs import FileInput

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_FAULTS = 32  # an answer to be read; a body of 10,000 wrong fields must not make an answer of 10,000 lines
MAX_LISTED_CHARACTERS = 200

# Browsers read JSON numbers as doubles: a seed above 2**53 would come back changed.
_LARGEST_SAFE_INTEGER = 2**53 - 1
_DEFAULT_LARGEST_SEED = 2**31 - 1

_CODES: Mapping[str, tuple[str, str]] = {
    "maximum": ("too_large", "must be {} or less"),
    "exclusiveMaximum": ("too_large", "must be less than {}"),
    "minimum": ("too_small", "must be {} or more"),
    "exclusiveMinimum": ("too_small", "must be more than {}"),
    "multipleOf": ("not_a_multiple", "must be a multiple of {}"),
    "maxLength": ("too_long", "must have at most {} characters"),
    "minLength": ("too_short", "must have at least {} characters"),
    "maxItems": ("too_long", "must have at most {} items"),
    "minItems": ("too_short", "must have at least {} items"),
    "maxProperties": ("too_long", "must have at most {} fields"),
    "minProperties": ("too_short", "must have at least {} fields"),
    "uniqueItems": ("not_unique", "must not list a value twice"),
    "pattern": ("wrong_format", "must match the pattern {}"),
    "format": ("wrong_format", "must be a valid {}"),
    "enum": ("not_allowed", "must be one of {}"),
    "const": ("not_allowed", "must be {}"),
    "type": ("wrong_type", "must be of type {}"),
    "propertyNames": ("not_allowed", "has a field whose name is not allowed"),
}
_NO_SINGLE_REASON = ("not_allowed", "does not have an allowed form; see the model's schema")
_UNKNOWN_FIELD = ("unknown_field", "is not an input of this model")


class BadSchema(ValueError):
    """The schema of a model cannot be used; the message says what to change."""


@dataclass(frozen=True, slots=True)
class InputFault:
    """One thing to change in a request: JSON Pointer into the body, stable code, readable message."""

    pointer: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class InputSchema:
    """A compiled schema; `seed_range` is the range a missing `seed` is drawn from, None without a seed."""

    document: Mapping[str, object]
    validator: jsonschema_rs.Draft202012Validator
    seed_range: tuple[int, int] | None
    files: Mapping[str, FileInput] = field(default_factory=dict)  # the inputs whose values are URLs of files
    properties: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # of the document, where described


def compile_schema(text: bytes) -> InputSchema:
    """Compile the schema in `text`. Raises BadSchema with the reason.

    >>> compile_schema(b'{"type": "object", "properties": {"seed": {"type": "integer"}}}').seed_range
    (0, 2147483647)
    """
    document = _parse(text)
    try:
        validator = jsonschema_rs.Draft202012Validator(
            document,
            validate_formats=True,
            retriever=_refuse,
            # The linear engine: a caller's text must not be able to stall ingest through an author's pattern.
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise BadSchema(f"is not a usable schema: {str(error).splitlines()[0]}") from error
    files = file_inputs.declared(document, BadSchema)
    return InputSchema(document, validator, _seed_range(document), files, _properties(document))


def check_input(schema: InputSchema, prompt: object, fields: Mapping[str, object]) -> tuple[InputFault, ...]:
    """Check a request's `prompt` (None when absent) and `input`; empty when everything is as it should be.

    Faults come sorted by pointer, at most MAX_FAULTS of them. A `prompt` inside `input` is a fault of its
    own: it would silently win over, or lose against, the one on top.
    """
    if "prompt" in fields:
        return (InputFault("/input/prompt", "not_allowed", "belongs at the top level of the request"),)
    inputs = dict(fields) if prompt is None else {"prompt": prompt, **fields}
    try:
        found = list(islice(_faults(schema, inputs), MAX_FAULTS))
    except ValueError:
        # Nested deeper than the validator follows, or no JSON at all: nothing a model could be given.
        return (InputFault("/input", "too_deep", "is nested too deeply or is not plain JSON"),)
    return tuple(sorted(set(found), key=lambda fault: (fault.pointer, fault.code)))


def draw_seed(schema: InputSchema, fields: Mapping[str, object], random_bits: int) -> dict[str, object]:
    """Return `fields` with a missing `seed` drawn from `random_bits`, so that the job can be reproduced.

    Unchanged when the caller gave a seed or the model knows none.
    """
    drawn = dict(fields)
    if schema.seed_range is not None and drawn.get("seed") is None:
        low, high = schema.seed_range
        drawn["seed"] = low + random_bits % (high - low + 1)
    return drawn


def _parse(text: bytes) -> dict[str, object]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSchema(f"is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("type") != "object":
        raise BadSchema('must be a JSON object with "type": "object", since it describes {"prompt": ..., **input}')
    if document.get("$schema", DIALECT) != DIALECT:
        raise BadSchema(f'must be written in draft 2020-12; set "$schema" to "{DIALECT}" or leave it out')
    return document


def _refuse(uri: str) -> NoReturn:
    """Answer every request for another document with a refusal: a schema must not open files or sockets."""
    raise ValueError(f"{uri} is another document; put it under $defs and refer to #/$defs/...")


def _properties(document: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    properties = document.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return {name: described for name, described in known.items() if isinstance(described, dict)}


def _seed_range(document: Mapping[str, object]) -> tuple[int, int] | None:
    properties = document.get("properties")
    seed = properties.get("seed") if isinstance(properties, dict) else None
    if not isinstance(seed, dict):
        return None
    kind = seed.get("type")
    if kind != "integer" and not (isinstance(kind, list) and "integer" in kind):
        return None
    low = int(seed.get("minimum", 0))
    high = min(int(seed.get("maximum", max(low, _DEFAULT_LARGEST_SEED))), _LARGEST_SAFE_INTEGER)
    if high < low:
        raise BadSchema("leaves no value for `seed`: its maximum is below its minimum")
    return low, high


def _faults(schema: InputSchema, inputs: Mapping[str, object]) -> Iterator[InputFault]:
    for error in schema.validator.iter_errors(inputs):
        keyword, value = error.kind.name, error.kind.value
        path = list(error.instance_path)
        if keyword == "required":
            yield _fault([*path, value], "missing", "is required")
        elif keyword in ("additionalProperties", "unevaluatedProperties"):
            yield from (_fault([*path, name], *_UNKNOWN_FIELD) for name in value)
        elif keyword == "falseSchema" and list(error.schema_path)[-1:] == ["additionalProperties"]:
            # The validator's short cut for an object without any properties: it does not name the field.
            yield _fault(path, "unknown_field", "takes no fields")
        else:
            yield _fault(path, *_explain(keyword, value))


def _explain(keyword: str, value: object) -> tuple[str, str]:
    if keyword == "pattern" and value == r"\S":
        return "blank", "must not be blank"
    code, message = _CODES.get(keyword, _NO_SINGLE_REASON)
    return code, message.format(_written(value))


def _written(limit: object) -> str:
    """Write a limit of the schema (never a value of the caller) the way it stands there."""
    if isinstance(limit, list):
        return ", ".join(_written(one) for one in limit)[:MAX_LISTED_CHARACTERS]
    return str(limit) if isinstance(limit, str) else json.dumps(limit, default=str)[:MAX_LISTED_CHARACTERS]


def _fault(path: list[str | int], code: str, message: str) -> InputFault:
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in path]
    root = "" if steps[:1] == ["prompt"] else "/input"
    return InputFault(root + "".join(f"/{step}" for step in steps), code, message)

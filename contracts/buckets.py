"""The bucket of a job: the parameters that decide how long it takes, as one short text. Pure.

Jobs of one model and bucket cost about the same, so their measured times are averaged together, and only they share a
batch. Promises: never free text of a caller (integers, numbers, booleans and values that the schema lists), at most
MAX_LENGTH characters, the same inputs give the same text.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

from contracts.model_inputs import InputSchema

MAX_LENGTH = 96
_WHOLE = frozenset({"integer", "boolean", "null"})
_UNWRITABLE = re.compile(r"[^A-Za-z0-9._+-]")


def cost_inputs(schema: InputSchema) -> tuple[str, ...]:
    """Return the inputs that may decide about the time: integers, booleans and listed values, but for the seed."""
    names = (name for name in schema.properties if name != "seed")
    return tuple(sorted(name for name in names if _has_no_text(schema, name, _WHOLE)))


def may_be_cost(schema: InputSchema, name: str) -> bool:
    """Whether an author may declare this input to be one: no value of it is free text."""
    return _has_no_text(schema, name, _WHOLE | {"number"})


def may_be_grid(schema: InputSchema, name: str) -> bool:
    """Whether an audit of memory may step through values of this input."""
    described = schema.properties.get(name, {})
    return described.get("type") in ("integer", "number")


def given(schema: InputSchema, names: Iterable[str], fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Give these inputs as the pipeline will have them: the schema's default where the caller says nothing."""
    properties = schema.properties
    return ((name, fields[name] if name in fields else properties.get(name, {}).get("default")) for name in names)


def bucket_of(schema: InputSchema, names: tuple[str, ...], fields: Mapping[str, object]) -> str | None:
    """Return the bucket of these inputs, None where nothing is known that matters.

    >>> from contracts.model_inputs import compile_schema
    >>> schema = compile_schema(b'{"type": "object", "properties": {"steps": {"type": "integer", "default": 24}}}')
    >>> bucket_of(schema, ("steps",), {}), bucket_of(schema, ("steps",), {"steps": 30})
    ('steps=24', 'steps=30')
    """
    text = ";".join(f"{name}={_written(value)}" for name, value in given(schema, names, fields) if value is not None)
    if len(text) > MAX_LENGTH:
        text = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return text or None


def _has_no_text(schema: InputSchema, name: str, kinds: frozenset[str]) -> bool:
    described = schema.properties.get(name, {})
    kind = described.get("type")
    named = frozenset(kind if isinstance(kind, list) else [kind])
    return "enum" in described or named <= kinds


def _written(value: object) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.2g}"
    if isinstance(value, bool | int | float):
        return str(int(value))
    return _UNWRITABLE.sub("_", str(value))

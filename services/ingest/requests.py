"""Bytes to typed requests, and everything that is wrong with them as JSON Pointers.

Promises: every fault of the shape is reported at once with the name the caller used (`webhook_url` stays
`webhook_url`), a stable code and a bounded message; nothing is coerced. Shape only: whether the model
exists or its schema is met is asked elsewhere.
"""

import hashlib
from collections.abc import Iterable
from typing import TypeVar

import orjson
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from contracts.api import GenerationJobData
from contracts.body import Body
from contracts.model_spec import ModelRegistry
from contracts.times import ms_of
from services.ingest.edge.problems import Fault, Problem
from services.ingest.edge.strict_json import BadJson, parse_object

MAX_FAULTS = 20
MAX_NAMES = 20
MAX_POINTER_LENGTH = 256
MAX_RUN_AHEAD_S = 30 * 86_400

B = TypeVar("B", bound=Body)

_CODES = {
    "extra_forbidden": "unknown_field",
    "missing": "missing",
    "literal_error": "unknown_value",
    "string_too_long": "too_long",
    "string_too_short": "too_short",
    "string_pattern_mismatch": "bad_format",
    "too_long": "too_long",
    "too_short": "too_short",
    "greater_than_equal": "too_small",
    "less_than_equal": "too_large",
    "contradiction": "contradiction",
    "header_not_allowed": "header_not_allowed",
    "value_error": "bad_format",
}


def parse_body(kind: type[B], raw: bytes) -> B:
    """Read one body. Raises Problem `malformed_json`, `unknown_field` or `invalid_input`."""
    try:
        fields = parse_object(raw)
    except BadJson as error:
        code = "invalid_input" if error.code == "not_an_object" else "malformed_json"
        raise Problem(code, error.message, (Fault("", error.code, error.message),)) from None
    return validate(kind, fields)


def validate(kind: type[B], fields: object) -> B:
    """Read fields that are JSON already. Raises Problem `unknown_field` or `invalid_input`."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise invalid_input(faults_of(error, fields)) from None


def read_query(kind: type[B], fields: object) -> B:
    """Read the filters of a URL. Raises Problem `bad_parameter` with what is wrong."""
    try:
        return validate(kind, fields)
    except Problem as problem:
        told = "; ".join(f"{fault.pointer[1:]}: {fault.message}" for fault in problem.faults)
        raise Problem("bad_parameter", told or problem.detail) from None


def invalid_input(faults: tuple[Fault, ...]) -> Problem:
    """Return the problem for these faults; `unknown_field` when nothing else is wrong."""
    only_unknown = all(fault.code == "unknown_field" for fault in faults)
    count = len(faults)
    detail = f"{count} field is wrong" if count == 1 else f"{count} fields are wrong"
    return Problem("unknown_field" if only_unknown else "invalid_input", detail, faults)


def no_such_model(models: ModelRegistry, also: Iterable[str] = ()) -> Problem:
    """Return the problem that names the models there are, `also` among them."""
    known = sorted({*(spec.reference for spec in models), *also})
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return Problem("model_not_found", f"There is no such model; known are {', '.join(known[:MAX_NAMES])}{more}")


def faults_of(error: ValidationError, fields: object) -> tuple[Fault, ...]:
    """Translate pydantic's findings, at most MAX_FAULTS of them."""
    found = error.errors(include_url=False, include_input=False)[:MAX_FAULTS]
    return tuple(
        Fault(
            str(item.get("ctx", {}).get("pointer") or json_pointer(item["loc"], fields)),
            _CODES.get(item["type"], "wrong_type"),
            item["msg"].removeprefix("Value error, "),
        )
        for item in found
    )


def json_pointer(location: tuple[str | int, ...], fields: object) -> str:
    """Write a location as a JSON Pointer into what the caller sent.

    >>> json_pointer(("policy", "maxAttempts"), {"policy": {"max_attempts": True}})
    '/policy/max_attempts'
    """
    pointer = ""
    node = fields
    for step in location:
        if step == "[key]":
            break
        if isinstance(node, dict) and isinstance(step, str):
            spelled = to_snake(step)
            step = spelled if step not in node and spelled in node else step
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
    return pointer[:MAX_POINTER_LENGTH]


def fingerprint(data: GenerationJobData, reproduces: str = "") -> str:
    """Return a digest of what is asked, the same however its fields were spelled and ordered."""
    fields = data.model_dump(exclude_none=True) | ({"reproduces": reproduces} if reproduces else {})
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()


def run_at_ms(data: GenerationJobData, now_ms: int) -> int | None:
    """Return when the job may start at the earliest, None for at once.

    Raises Problem when that is too far away, or later than the job's own start-by limit.
    """
    if data.run_at is None:
        return None
    due_ms = ms_of(data.run_at)
    if due_ms <= now_ms:
        return None
    if due_ms > now_ms + MAX_RUN_AHEAD_S * 1000:
        days = MAX_RUN_AHEAD_S // 86_400
        raise invalid_input((Fault("/runAt", "too_large", f"must be within {days} days from now"),))
    limit_s = data.policy.start_by_seconds
    if limit_s is not None and due_ms >= now_ms + limit_s * 1000:
        message = "the job would have expired before it may start"
        raise invalid_input((Fault("/policy/startBySeconds", "contradiction", message),))
    return due_ms

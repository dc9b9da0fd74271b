"""What all bodies of the public API share: how they are read, and the kinds of text and time in them.

Promises: types are strict (no "30" for 30, no true for 1), every string and number has a bound, an unknown field is
refused and never silently dropped. Input takes camelCase and snake_case, output is camelCase.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

# Printable text only: a control character in a name ends up in a log line or a header sooner or later.
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
MetadataKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
MetadataValue = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]
# Nor what a terminal obeys or a reader is misled by: C1 controls, separators of lines, overrides of direction.
Reason = Annotated[
    str, Field(max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]*$")
]  # fmt: skip

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")


def _parse_instant(value: object) -> object:
    """Read RFC 3339 text with an offset: a local time without one would mean another moment on each host."""
    if not isinstance(value, str):
        return value
    if not _RFC3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time with an offset, such as 2026-11-29T23:00:00Z")
    moment = datetime.fromisoformat(value.upper())
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be in one of the years 1 to 9999, in UTC, too") from None
    return moment


Instant = Annotated[datetime, BeforeValidator(_parse_instant, json_schema_input_type=str)]


class Body(BaseModel):
    """Base of everything that crosses the public API."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

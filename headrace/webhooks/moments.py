"""Moments as the flags of webhook commands take them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from contracts.setting_values import parse_seconds

_MOMENT = "RFC 3339, or how long ago: 2h, 30m, 1d"
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)", re.IGNORECASE)

Since = Annotated[str, typer.Option(help=f"From then on; {_MOMENT}.")]
MaybeSince = Annotated[str | None, typer.Option("--since", help=f"From then on; {_MOMENT}.")]
Until = Annotated[str | None, typer.Option(help="Before then; the same.")]


def read_moment(text: str, hint: str) -> str:
    """Return a moment as the API takes it; what is none ends the program with a usage error."""
    seconds = parse_seconds(text)
    try:
        if isinstance(seconds, float):
            return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
        if not _RFC3339.fullmatch(text):
            raise ValueError
        return datetime.fromisoformat(text).isoformat()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not {_MOMENT}", param_hint=hint) from None


def read_range(since: str | None, until: str | None) -> dict[str, str]:
    """Return the members of a request that bound a time."""
    given = {"since": since, "until": until}
    return {name: read_moment(text, f"--{name}") for name, text in given.items() if text is not None}

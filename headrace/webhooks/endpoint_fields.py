"""What an endpoint is made of, as flags, and as the body of a request. The server judges it."""

import math
from pathlib import Path
from typing import Annotated

import typer

from headrace.client import JsonObject

Events = Annotated[
    list[str] | None,
    typer.Option("--event", "-e", help="What to send: job.completed, a family like job.*, or *; repeatable.",
                 show_default="each state a job can end in, and its start"),
]  # fmt: skip
WebhookFormat = Annotated[str | None, typer.Option("--format", help="standard, flat or cloudevents.")]
Ordering = Annotated[str | None, typer.Option(help="best-effort, or strict: an event waits for those before it.")]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE",
                 help="Goes with each call; =@FILE reads the value from a file, where `ps` does not show it."),
]  # fmt: skip
RateLimit = Annotated[str | None, typer.Option(metavar="N|none", help="Calls in a second.")]
MinIntervalMs = Annotated[int | None, typer.Option(help="Between two job.progress of one job; the newest is sent.")]
MaxInFlight = Annotated[str | None, typer.Option(metavar="N|none", help="Calls at the same time.")]
Ed25519 = Annotated[bool | None, typer.Option("--ed25519/--no-ed25519", help="Sign with the public key, too (v1a).")]
Description = Annotated[str | None, typer.Option(help="For those who read the list.")]


def read_fields(
    target: str | None, events: list[str] | None, form: str | None, ordering: str | None, headers: list[str] | None,
    rate_limit: str | None, min_interval_ms: int | None, max_in_flight: str | None, ed25519: bool | None,
    description: str | None,
) -> JsonObject:  # fmt: skip
    """Return the body of a request: what was given; the server judges it."""
    given: JsonObject = {
        "url": target, "events": events or None, "format": form, "ordering": ordering,
        "minIntervalMs": min_interval_ms, "ed25519": ed25519, "description": description,
        "headers": dict(_header(text) for text in headers) if headers else None,
    }  # fmt: skip
    limits: JsonObject = {
        "rateLimit": None if rate_limit is None else _limit(rate_limit, "--rate-limit", whole=False),
        "maxInFlight": None if max_in_flight is None else _limit(max_in_flight, "--max-in-flight", whole=True),
    }
    return {name: value for name, value in given.items() if value is not None} | {
        name: read[0] for name, read in limits.items() if read is not None
    }


def _limit(text: str, hint: str, *, whole: bool) -> tuple[float | None]:
    """Return a limit, alone in a tuple as `none` takes it back."""
    if text == "none":
        return (None,)
    try:
        number = int(text) if whole else float(text)
        if not math.isfinite(number):
            raise ValueError
        return (number,)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither a number nor none", param_hint=hint) from None


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter("is not NAME=VALUE", param_hint="--header")
    if not value.startswith("@"):
        return name, value
    try:
        return name, Path(value[1:]).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as fault:
        raise typer.BadParameter(f"{value[1:]} cannot be read: {fault}", param_hint="--header") from None

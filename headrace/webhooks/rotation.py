"""What rotating a secret asks and says, of an endpoint as of a tenant."""

from typing import Annotated

import typer

from headrace.client import JsonObject

KEEP_IT = "keep the secret now: it cannot be shown again; until oldSecretUntil both sign"
OverlapS = Annotated[
    int | None,
    typer.Option("--overlap-s", min=0, help="The old secret signs, too, for so long.", show_default="a day"),
]


def rotation(overlap_s: int | None, reason: str) -> JsonObject:
    """Return what is asked for; without an overlap it is the server's."""
    return {"reason": reason} | ({} if overlap_s is None else {"overlapSeconds": overlap_s})

"""`headrace policy`: get and set, which need the admin key, and simulate."""

from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Output, Reason, Url, call
from headrace.lazy import lazy_group
from headrace.output import Format, show_one

#: It brings the whole scheduler along.
COMMANDS = {"simulate": "headrace.simulate:simulate"}

app = typer.Typer(cls=lazy_group(COMMANDS), no_args_is_help=True, help="How a pool shares its devices.")

_PATH = "/admin/v1/scheduler/policy"
Pool = Annotated[str | None, typer.Option(help="Name of the pool.", show_default="the first one")]


@app.command()
def get(pool: Pool = None, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print the policy in force."""
    show_one(call(lambda client: client.get(_PATH, _of(pool)), url, key_file, output, ADMIN).body, output)


@app.command(name="set")
def set_(
    tier_weights: Annotated[
        list[str] | None, typer.Option("--tier-weight", metavar="TIER=N", help="Share of a tier; repeatable.")
    ] = None,
    tier_floors: Annotated[
        list[str] | None, typer.Option("--tier-floor", metavar="TIER=N", help="Part of the pool it has in any case.")
    ] = None,
    lead_seconds: Annotated[float | None, typer.Option(help="How far a preference may depart from fairness.")] = None,
    bypass_seconds: Annotated[float | None, typer.Option(help="Service that may overtake a tenant's fair job.")] = None,
    hold: Annotated[bool | None, typer.Option(help="May a job wait for a busy device that has its model?")] = None,
    deck_lead_seconds: Annotated[float | None, typer.Option(help="How early the next job is handed out.")] = None,
    reset: Annotated[
        list[str] | None, typer.Option(metavar="KNOB", help="Back to the setting: leadSeconds, tierFloors, ...")
    ] = None,
    pool: Pool = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Change what is given and print the policy in force."""
    given: JsonObject = {
        "tierWeights": _shares(tier_weights, "--tier-weight"),
        "tierFloors": _shares(tier_floors, "--tier-floor"),
        "leadSeconds": lead_seconds,
        "bypassSeconds": bypass_seconds,
        "hold": hold,
        "deckLeadSeconds": deck_lead_seconds,
    }
    body = {name: value for name, value in given.items() if value is not None}
    if both := body.keys() & set(reset or ()):
        raise typer.BadParameter(f"{', '.join(sorted(both))} is set as well", param_hint="--reset")
    body |= dict.fromkeys(reset or (), None) | {"reason": reason}
    show_one(call(lambda client: client.patch(_PATH, body, _of(pool)), url, key_file, output, ADMIN).body, output)


def _of(pool: str | None) -> list[tuple[str, str]]:
    return [] if pool is None else [("pool", pool)]


def _shares(pairs: list[str] | None, option: str) -> dict[str, float] | None:
    found = {}
    for pair in pairs or ():
        tier, _, number = pair.partition("=")
        try:
            found[tier] = float(number)
        except ValueError:
            raise typer.BadParameter(f"{pair!r} is not TIER=NUMBER", param_hint=option) from None
    return found or None

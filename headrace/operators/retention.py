"""`headrace retention`: how long what has ended is kept. Needs the admin key."""

from typing import Annotated

import typer

from contracts.setting_values import parse_seconds
from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Output, Reason, Url, call
from headrace.output import Format, show_one

app = typer.Typer(no_args_is_help=True, help="How long what has ended is kept.")

_PATH = "/admin/v1/retention"
_DEFAULT = "default"
Pool = Annotated[str | None, typer.Option(help="Of this pool.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant.")]
Time = f"90, 10m, 24h, 7d; `{_DEFAULT}`: as the next wider scope has it."


@app.command()
def show(
    pool: Pool = None, tenant: Tenant = None, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:
    """Print what holds for all, or for a pool or a tenant, and where something else holds."""
    params = _scope(pool, tenant)
    show_one(call(lambda client: client.get(_PATH, params), url, key_file, output, ADMIN).body, output)


@app.command(name="set")
def set_(
    completed: Annotated[str | None, typer.Option(help=f"Jobs that completed, with their results: {Time}")] = None,
    failed: Annotated[str | None, typer.Option(help="All others, dead letters among them; the same.")] = None,
    live: Annotated[str | None, typer.Option(help="Archived events stay in the store for so long; the same.")] = None,
    pool: Pool = None,
    tenant: Tenant = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Change what is given, from now on and for what has ended already, and print what holds."""
    given = {"completedSeconds": completed, "failedSeconds": failed, "liveSeconds": live}
    body: JsonObject = {name: _seconds(text, name) for name, text in given.items() if text is not None}
    params = _scope(pool, tenant)
    body |= {"reason": reason}
    show_one(call(lambda client: client.patch(_PATH, body, params), url, key_file, output, ADMIN).body, output)


def _scope(pool: str | None, tenant: str | None) -> list[tuple[str, str]]:
    given = {"pool": pool, "tenantId": tenant}
    return [(name, value) for name, value in given.items() if value is not None]


def _seconds(text: str, name: str) -> float | None:
    if text == _DEFAULT:
        return None
    try:
        return float(parse_seconds(text))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        option = "--" + name.removesuffix("Seconds")
        raise typer.BadParameter(f"{text!r} is no time: {Time}", param_hint=option) from None

"""`headrace pool`: list, describe, pause, resume. Needs the admin key."""

from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import ADMIN, KeyFile, Output, Url, call, path_segment
from headrace.output import Format, show_list, show_one
from headrace.pausing import add_pausing

app = typer.Typer(no_args_is_help=True, help="Where jobs wait and run.")

_PATH = "/admin/v1/pools"
Name = Annotated[str, typer.Argument(help="Name of the pool.")]


@app.command(name="list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print all pools."""

    async def action(client: Client) -> JsonObject:
        return await client.pages(_PATH, [], limit)

    show_list(call(action, url, key_file, output, ADMIN), ("name", "paused", "workers", "use", "models"), output)


@app.command()
def describe(pool: Name, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one pool."""
    path = f"{_PATH}/{path_segment(pool)}"
    show_one(call(lambda client: client.get(path), url, key_file, output, ADMIN).body, output)


add_pausing(
    app, _PATH,
    pause="Offer nothing of a pool any more; what runs goes on, and jobs are still accepted.",
    resume="Serve a pool again.",
)  # fmt: skip

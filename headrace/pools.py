"""`headrace pool`: list, describe, pause, resume. Needs the admin key."""

from typing import Annotated

import typer

from headrace.command import ADMIN, KeyFile, Limit, Output, Url, call, path_segment
from headrace.output import Format, show_list, show_one
from headrace.pausing import add_pausing

app = typer.Typer(no_args_is_help=True, help="Where jobs wait and run.")

_PATH = "/admin/v1/pools"
Name = Annotated[str, typer.Argument(help="Name of the pool.")]


@app.command(name="list")
def list_(limit: Limit = 100, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print all pools."""
    page = call(lambda client: client.pages(_PATH, [], limit), url, key_file, output, ADMIN)
    show_list(page, ("name", "paused", "workers", "use", "models"), output)


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

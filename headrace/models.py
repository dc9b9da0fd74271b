"""`headrace model`: list and describe with any key, pause and resume with the admin key."""

from typing import Annotated

import typer

from headrace.command import KeyFile, Output, Url, call, path_segment
from headrace.output import Format, show_list, show_one
from headrace.pausing import add_pausing

app = typer.Typer(no_args_is_help=True, help="What may be asked for.")

_ALSO = "@."  # in the name of one version
Name = Annotated[str, typer.Argument(help="name, or name@version for a certain one.")]


@app.command(name="list")
def list_(output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print all models."""
    page = call(lambda client: client.get("/v1/models"), url, key_file, output).body
    show_list(page, ("name", "version", "pools", "vramMib", "maxBatch", "paused"), output)


@app.command()
def describe(model: Name, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one model with the JSON Schema of its inputs."""
    path = f"/v1/models/{path_segment(model, also=_ALSO)}"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)


add_pausing(
    app, "/admin/v1/models", also=_ALSO,
    pause="Offer no job of a model any more; its name alone means all versions. What runs goes on.",
    resume="Serve a model again; takes back a pause under exactly this name.",
)  # fmt: skip

"""`headrace model`: list and describe with any key, pause and resume with the admin key."""

from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Output, Reason, Url, call, path_segment
from headrace.output import Format, show_list, show_one

app = typer.Typer(no_args_is_help=True, help="What may be asked for.")

Name = Annotated[str, typer.Argument(help="name, or name@version for a certain one.")]


@app.command(name="list")
def list_(output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print all models."""
    page = call(lambda client: client.get("/v1/models"), url, key_file, output).body
    show_list(page, ("name", "version", "pools", "vramMib", "maxBatch", "paused"), output)


@app.command()
def describe(model: Name, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one model with the JSON Schema of its inputs."""
    path = f"/v1/models/{path_segment(model, also='@.')}"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)


@app.command()
def pause(
    model: Name, reason: Reason = "", output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:
    """Offer no job of a model any more; its name alone means all versions. What runs goes on."""
    show_one(_set(model, "pause", reason, output, url, key_file), output)


@app.command()
def resume(
    model: Name, reason: Reason = "", output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:
    """Serve a model again; takes back a pause under exactly this name."""
    show_one(_set(model, "resume", reason, output, url, key_file), output)


def _set(model: str, verb: str, reason: str, output: Format, url: Url, key_file: KeyFile) -> JsonObject:
    path = f"/admin/v1/models/{path_segment(model, also='@.')}/{verb}"
    return call(lambda client: client.post(path, {"reason": reason}), url, key_file, output, ADMIN).body

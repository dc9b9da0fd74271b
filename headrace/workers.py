"""`headrace worker`: list, describe, drain, undrain, load-model, evict-model. Needs the admin key."""

from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Output, Reason, Url, call, path_segment, post_and_show
from headrace.output import Format, show_list, show_one

app = typer.Typer(no_args_is_help=True, help="Who runs jobs, on which devices.")

_PATH = "/admin/v1/workers"
WorkerId = Annotated[str, typer.Argument(help="Id of the worker.")]
Model = Annotated[str, typer.Argument(help="name, or name@version for a certain one.")]
Device = Annotated[str | None, typer.Option(help="Only on this device of the worker.")]


@app.command(name="list")
def list_(output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print all workers with what their devices hold."""
    page = call(lambda client: client.get(_PATH), url, key_file, output, ADMIN).body
    shown = page if output is Format.JSON else page | {"data": [_line(worker) for worker in page["data"]]}
    show_list(shown, ("id", "pool", "host", "state", "jobs", "devices", "models", "lastBeatAt"), output)


@app.command()
def describe(worker: WorkerId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one worker."""
    path = f"{_PATH}/{path_segment(worker)}"
    show_one(call(lambda client: client.get(path), url, key_file, output, ADMIN).body, output)


@app.command()
def drain(
    worker: WorkerId,
    deadline_s: Annotated[float | None, typer.Option(min=0, help="Then give back what still runs.")] = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Let a worker finish and take nothing new; its models leave the devices, its process stays."""
    body: JsonObject = {"deadlineSeconds": deadline_s, "reason": reason}
    _ask(worker, "drain", body, output, url, key_file)


@app.command()
def undrain(
    worker: WorkerId, reason: Reason = "", output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:
    """Let a drained worker work again, under a new id."""
    _ask(worker, "undrain", {"reason": reason}, output, url, key_file)


def _model_command(verb: str, help_text: str) -> None:
    @app.command(name=verb, help=help_text)
    def ask(
        worker: WorkerId,
        model: Model,
        device: Device = None,
        reason: Reason = "",
        output: Output = Format.TABLE,
        url: Url = None,
        key_file: KeyFile = None,
    ) -> None:
        _ask(worker, verb, {"model": model, "device": device, "reason": reason}, output, url, key_file)


_model_command("load-model", "Have a model in memory before a job asks for it.")
_model_command("evict-model", "Take a model out of memory once it is idle, also a pinned one.")


def _ask(worker: str, verb: str, body: JsonObject, output: Format, url: Url, key_file: KeyFile) -> None:
    post_and_show(f"{_PATH}/{path_segment(worker)}/{verb}", body, output, url, key_file, ADMIN)


def _line(worker: JsonObject) -> JsonObject:
    """Say in one line what a worker does."""
    models = [f"{model['model']} {model['state']}" for device in worker["devices"] for model in device["models"]]
    devices = [str(device["uuid"]) for device in worker["devices"]]
    return worker | {"jobs": len(worker["held"]), "devices": " ".join(devices), "models": ", ".join(models)}

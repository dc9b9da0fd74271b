"""The commands of `headrace events`. Composition only."""

import typer

from headrace.lazy import lazy_group

COMMANDS = {
    "list": "headrace.events.reading:list_",
    "get": "headrace.events.reading:get",
    "tail": "headrace.events.tailing:tail",
    "types": "headrace.events.reading:types",
    "export": "headrace.events.exporting:export",
    "import": "headrace.events.importing:import_",
}

app = typer.Typer(cls=lazy_group(COMMANDS), no_args_is_help=True, help="What happened, from the log and its archive.")


@app.callback()
def events() -> None:
    """What happened, from the log and its archive."""

"""`headrace events export`: the log in a file, whole or not at all."""

import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import orjson
import typer

from headrace.client import Client
from headrace.command import KeyFile, Url, call
from headrace.events.exported import Exported, NotWhole
from headrace.events.filters import Job, Model, Params, Since, Until, User, read_filters
from headrace.exits import Exit
from headrace.output import Format, note


def export(
    path: Annotated[Path, typer.Argument(help="Where to write it; - for standard output.")] = Path("-"),
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Annotated[str | None, typer.Option("--type", help='Only of these types: job.failed, "job.*" ...')] = None,
    since: Since = None,
    until: Until = None,
    after: Annotated[str | None, typer.Option(help="Go on behind these positions, one for each pool.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on behind an export: the nextCursor of its end.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Write events as lines of JSON; the last line counts them, with their SHA-256 and where to go on."""
    places = {"after": after, "cursor": cursor}
    params = read_filters(job, user, model, type_, since, until)
    params += [(name, text) for name, text in places.items() if text is not None]
    try:
        if str(path) == "-":
            count = call(lambda client: _write(client, params, sys.stdout.buffer), url, key_file, Format.TABLE)
        else:
            partial = path.with_name(path.name + ".part")
            with partial.open("wb") as file:
                count = call(lambda client: _write(client, params, file), url, key_file, Format.TABLE)
            partial.replace(path)
    except OSError as fault:
        raise typer.BadParameter(f"{path} cannot be written: {fault.strerror}", param_hint="PATH") from None
    except NotWhole as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    note(f"{count} events")


async def _write(client: Client, params: Params, file: BinaryIO) -> int:
    exported = Exported(client, params)
    async for line in exported.lines():
        file.write(line)
    file.write(orjson.dumps(exported.end) + b"\n")
    file.flush()
    return exported.count

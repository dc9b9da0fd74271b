"""`headrace events export`: the log in a file, whole or not at all."""

import sys
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol

import orjson
import typer

from headrace.client import Client
from headrace.command import KeyFile, Url, call
from headrace.events.exported import Exported, NotWhole
from headrace.events.filters import Job, Model, Params, Since, Type, Until, User, read_filters
from headrace.exits import Exit
from headrace.output import Format, note


class Form(StrEnum):
    """What is written."""

    NDJSON = "ndjson"
    PARQUET = "parquet"


class _Sink(Protocol):
    def line(self, line: bytes) -> None: ...
    def end(self, exported: Exported) -> None: ...


class _Lines:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def line(self, line: bytes) -> None:
        self._file.write(line)

    def end(self, exported: Exported) -> None:
        self._file.write(orjson.dumps(exported.end) + b"\n")
        self._file.flush()


def export(
    path: Annotated[Path, typer.Argument(help="Where to write it; - for standard output.")] = Path("-"),
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Type = None,
    since: Since = None,
    until: Until = None,
    after: Annotated[str | None, typer.Option(help="Go on behind these positions, one for each pool.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on behind an export: the nextCursor of its end.")] = None,
    form: Annotated[Form, typer.Option("--format", help="parquet: a row for each event, for analysis.")] = Form.NDJSON,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Write events as lines of JSON; the last line counts them, with their SHA-256 and where to go on."""
    _check(path, form)
    places = {"after": after, "cursor": cursor}
    params = read_filters(job, user, model, type_, since, until)
    params += [(name, text) for name, text in places.items() if text is not None]
    try:
        if str(path) == "-":
            count = call(lambda client: _write(client, params, sys.stdout.buffer, form), url, key_file, Format.TABLE)
        else:
            partial = path.with_name(path.name + ".part")
            with partial.open("wb") as file:
                count = call(lambda client: _write(client, params, file, form), url, key_file, Format.TABLE)
            partial.replace(path)
    except OSError as fault:
        raise typer.BadParameter(f"{path} cannot be written: {fault.strerror}", param_hint="PATH") from None
    except NotWhole as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    note(f"{count} events")


def _check(path: Path, form: Form) -> None:
    """End with a usage error where this cannot be written, before anything is asked for."""
    if form is not Form.PARQUET:
        return
    from headrace.events import parquet

    if not parquet.IS_THERE:
        raise typer.BadParameter(parquet.HINT, param_hint="--format")
    if str(path) == "-":
        raise typer.BadParameter("Parquet goes into a file: give its path", param_hint="PATH")


async def _write(client: Client, params: Params, file: BinaryIO, form: Form) -> int:
    exported = Exported(client, params)
    with _sink(file, form) as sink:
        async for line in exported.lines():
            sink.line(line)
        sink.end(exported)
    return exported.count


def _sink(file: BinaryIO, form: Form) -> AbstractContextManager[_Sink]:
    if form is Form.NDJSON:
        return nullcontext(_Lines(file))
    from headrace.events.parquet import ParquetSink  # pyarrow takes a second to load

    return ParquetSink(file)

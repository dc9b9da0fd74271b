"""`headrace events tail`: what happens, as it happens, without a hole."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import orjson
import typer

from headrace.client import Client
from headrace.command import KeyFile, Output, Url, call
from headrace.events.exported import Exported
from headrace.events.filters import Job, Model, Params, Since, User, read_filters
from headrace.output import Format

LOOK_S = 1.0


def tail(
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Annotated[str | None, typer.Option("--type", help='Only of these types: job.failed, "job.*" ...')] = None,
    since: Since = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print events of all jobs from now on (or --since then), until Ctrl-C."""
    begin = since or datetime.now(UTC).isoformat(timespec="milliseconds")
    params = read_filters(job, user, model, type_, begin, None)
    call(lambda client: _follow(client, params, output), url, key_file, output)


async def _follow(client: Client, params: Params, form: Format) -> None:
    cursor: Params = []
    while True:
        exported = Exported(client, [*params, *cursor])
        async for line in exported.lines():
            typer.echo(line.decode().rstrip() if form is not Format.TABLE else _row(orjson.loads(line)))
        cursor = [("cursor", exported.cursor)]
        await asyncio.sleep(LOOK_S)


def _row(event: dict[str, object]) -> str:
    return f"{event['time']}  {event['position']}  {event['type']}  {event['subject']}"

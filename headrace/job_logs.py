"""`headrace jobs logs`: what a job printed, or follow it while it runs."""

import sys
from typing import Annotated

import typer

from headrace.client import Client
from headrace.command import KeyFile, Output, Url, call, path_segment
from headrace.event_stream import follow_events
from headrace.output import Format, note, show_one

_PAGE_LINES = 1_000


def logs(
    job_id: Annotated[str, typer.Argument(help="Id of the job, job_...")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print what the attempts of a job printed; the text as it is, or lines with their place as JSON."""
    path = f"/v1/jobs/{path_segment(job_id)}/logs"

    async def action(client: Client) -> None:
        if follow:
            await _follow(client, path, output)
        else:
            await _print(client, path, output)

    call(action, url, key_file, output)


async def _print(client: Client, path: str, form: Format) -> None:
    cursor: list[tuple[str, str]] = []
    while True:
        page = (await client.get(path, [("limit", str(_PAGE_LINES)), *cursor])).body
        for line in page["data"]:
            if form is Format.TABLE:
                print(line["text"])
            else:
                show_one(line, Format.NDJSON)
        if not page["hasMore"]:
            return
        cursor = [("cursor", str(page["nextCursor"]))]


async def _follow(client: Client, path: str, form: Format) -> None:
    async for event, data, _ in follow_events(client, path):
        if form is not Format.TABLE:
            show_one({"event": event, **data}, Format.NDJSON)
        elif event == "log":
            sys.stdout.write(str(data["text"]))
            sys.stdout.flush()
        elif event == "gap":
            note(f"{data['bytes']} bytes were printed before; `headrace jobs logs` has them when the job has ended")

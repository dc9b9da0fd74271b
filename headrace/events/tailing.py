"""`headrace events tail`: what happens, as it happens, without a hole."""

import orjson
import typer

from headrace.client import Client
from headrace.command import KeyFile, Output, Url, call
from headrace.events.filters import Job, Model, Params, Since, Type, User, read_filters
from headrace.events.following import Following
from headrace.output import Format


def tail(
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Type = None,
    since: Since = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print events of all jobs from now on (or --since then), until Ctrl-C.

    Goes on where it was when the server restarts. A line of type `gap` stands where events will not come any more.
    """
    params = read_filters(job, user, model, type_, since, None)
    call(lambda client: _follow(client, params, output), url, key_file, output)


async def _follow(client: Client, params: Params, form: Format) -> None:
    async for event in Following(client, params).events():
        typer.echo(orjson.dumps(event).decode() if form is not Format.TABLE else event_row(event))


def event_row(event: dict[str, object]) -> str:
    """Return an event as a line for people."""
    if event["type"] == "gap":
        return f"-- gap: what followed {event['requested']} is not there any more --"
    return f"{event['time']}  {event['position']}  {event['type']}  {event['subject']}"

"""`headrace events list|get`: events out of the log and its archive."""

from typing import Annotated

import typer

from headrace.command import ADMIN, API, KeyFile, Limit, Output, Url, call, path_segment
from headrace.events.filters import Job, Model, Since, Type, Until, User, read_filters
from headrace.output import Format, show_list, show_one

PATH, ADMIN_PATH = "/v1/events", "/admin/v1/events"
COLUMNS = ("position", "time", "type", "subject", "sequence")


def list_(
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Type = None,
    since: Since = None,
    until: Until = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="The newest first.")] = False,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Of everybody, with the admin key.")] = False,
    worker: Annotated[str | None, typer.Option(help="Only those that name this worker, with the admin key.")] = None,
    limit: Limit = 50,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print events, the oldest first."""
    filters = read_filters(job, user, model, type_, since, until) + ([("order", "desc")] if newest_first else [])
    filters += [] if worker is None else [("workerId", worker)]
    path, key_name = (ADMIN_PATH, ADMIN) if all_tenants or worker is not None else (PATH, API)
    page = call(lambda client: client.pages(path, filters, limit), url, key_file, output, key_name)
    show_list(page, COLUMNS, output)


def get(
    event_id: Annotated[str, typer.Argument(help="Id of the event, evt_...")],
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print one event, with its hash once it is sealed in the archive."""
    path = f"{PATH}/{path_segment(event_id)}"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)


def types(
    type_: Annotated[str | None, typer.Argument(metavar="TYPE", help="One of them, with its JSON Schema.")] = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print the types of events and what each says, or one with its schema and an example."""
    if type_ is None:
        page = call(lambda client: client.get("/v1/event-types"), url, key_file, output).body
        show_list(page, ("type", "webhook", "about"), output)
        return
    path = f"/v1/event-types/{path_segment(type_, also='.')}"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)

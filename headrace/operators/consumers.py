"""`headrace consumers`: who reads the logs, how far each is, and a dead group dropped. Needs the admin key."""

from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Limit, Output, Reason, Url, call
from headrace.output import Format, note, show_list, show_one

app = typer.Typer(no_args_is_help=True, help="Who reads the event log, and how far each is.")

_PATH = "/admin/v1/consumers"
_COLUMNS = ("pool", "stream", "group", "lag", "behindSeconds", "pending", "oldestPending", "active", "holdsLog")


@app.command(name="list")
def list_(
    pool: Annotated[str | None, typer.Option(help="Only of this pool.")] = None,
    limit: Limit = 200,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print all groups; `unknown` is a lag that nobody knows, which is not none."""
    filters = [] if pool is None else [("pool", pool)]
    page = call(lambda client: client.pages(_PATH, filters, limit), url, key_file, output, ADMIN)
    shown = page if output is not Format.TABLE else page | {"data": [_line(each) for each in page["data"]]}
    show_list(shown, _COLUMNS, output)
    for each in page["data"]:
        if each["drop"] and each["holdsLog"]:
            note(f"nobody reads {each['group']}, and the log of {each['pool']} is kept for it: {each['drop']}")


@app.command()
def drop(
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    reason: Reason,
    force: Annotated[bool, typer.Option("--force", help="Also if somebody reads it.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Drop a group that nobody reads any more, so that the log is trimmed past it."""
    query = urlencode({"reason": reason} | ({"force": "true"} if force else {}))
    path = f"{_PATH}/{quote(pool, safe='')}/{quote(group, safe='')}?{query}"
    call(lambda client: client.delete(path), url, key_file, output, ADMIN)
    show_one({"pool": pool, "group": group, "dropped": True}, output)


def _line(group: JsonObject) -> JsonObject:
    oldest = group["oldestPending"]
    return group | {
        "lag": "unknown" if group["lag"] is None else group["lag"],
        "oldestPending": None if oldest is None else f"{oldest['ageSeconds']:.0f} s ({oldest['member']})",
    }

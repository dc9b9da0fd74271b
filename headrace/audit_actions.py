"""`headrace audit actions`: who did what with the admin key. Asks the server; needs the admin key, or `audit:read`."""

from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Limit, Output, Url, call
from headrace.output import Format, show_list


def actions(
    actor: Annotated[str | None, typer.Option(help="Only by this key, or by operator.")] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help="Only such events; repeatable.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only what concerned this tenant.")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="RFC 3339, included.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339, not included.")] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="In the order they were done.")] = False,
    limit: Limit = 50,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print what was done, newest first: who, from where, why."""
    asked = {
        "actor": actor, "type": ",".join(types) if types else None, "tenantId": tenant, "from": from_, "to": to,
        "order": "asc" if oldest_first else None,
    }  # fmt: skip
    params = [(name, value) for name, value in asked.items() if value is not None]
    page = call(lambda client: client.pages("/v1/audit/actions", params, limit), url, key_file, output, ADMIN)
    shown = page if output is not Format.TABLE else page | {"data": [_line(action) for action in page["data"]]}
    show_list(shown, ("time", "type", "actor", "ip", "tenantId", "what", "reason"), output)


def _line(action: JsonObject) -> JsonObject:
    """Say in a few words what it was done to."""
    told = {name: value for name, value in action["data"].items() if name != "tenantId"}
    return action | {"what": " ".join(f"{name}={value}" for name, value in told.items())[:80] or action["subject"]}

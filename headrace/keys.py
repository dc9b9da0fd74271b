"""`headrace key`: create, list and revoke API keys, with the admin key; `init` makes the first ones."""

import asyncio
import os
from typing import Annotated

import typer

from contracts.errors import ConfigError, HeadraceError
from contracts.settings import load_settings
from headrace.client import JsonObject
from headrace.command import ADMIN, KeyFile, Limit, Output, Reason, Url, call, exit_for_error, path_segment
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.stack.bootstrap import TENANT, open_keys
from headrace.stack.plan import public_url

app = typer.Typer(no_args_is_help=True, help="API keys of a tenant.")

Tenant = Annotated[str, typer.Argument(help="Id of the tenant.")]
DEFAULT_SCOPES = ("jobs:read", "jobs:write", "models:read", "events:read", "webhooks:read", "webhooks:write")


@app.command()
def create(
    tenant_id: Tenant,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="What it may do; repeatable.", show_default="jobs and webhooks"),
    ] = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Create a key; it is shown this once."""
    body: JsonObject = {"scopes": scopes or list(DEFAULT_SCOPES), "reason": reason}
    path = f"/admin/v1/tenants/{path_segment(tenant_id)}/keys"
    made = call(lambda client: client.post(path, body), url, key_file, output, ADMIN).body
    show_one(made, output)
    note("keep the key now: it is stored as a digest and cannot be shown again")


@app.command(name="list")
def list_(
    tenant_id: Tenant,
    limit: Limit = 100,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print a tenant's keys, without the keys themselves."""
    path = f"/admin/v1/tenants/{path_segment(tenant_id)}/keys"
    page = call(lambda client: client.pages(path, [], limit), url, key_file, output, ADMIN)
    show_list(page, ("id", "scopes", "createdAt"), output)


@app.command()
def revoke(
    tenant_id: Tenant,
    key_id: Annotated[str, typer.Argument(help="Id of the key.")],
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Make a key useless at once."""
    path = f"/admin/v1/tenants/{path_segment(tenant_id)}/keys/{path_segment(key_id)}"
    because = [("reason", reason)] if reason else []
    call(lambda client: client.delete(path, because), url, key_file, output, ADMIN)
    show_one({"id": key_id, "revoked": True}, output)


@app.command()
def init() -> None:
    """Make the first keys of a store that `headrace up` never served, as it does; they go into keys.json."""
    try:
        settings = load_settings(os.environ)
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: which store? `headrace up` makes the keys of its own"])
        home = settings.data_dir.expanduser()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        url = settings.public_url or public_url(settings.ingest.host, settings.ingest.port)
        asyncio.run(open_keys(home / "keys.json", settings.redis.url, url))
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None
    except OSError as fault:
        note(f"error: {fault.filename} cannot be written: {fault.strerror}")
        raise typer.Exit(Exit.USAGE) from None
    show_one({"file": str(home / "keys.json"), "tenantId": TENANT, "url": url}, Format.TABLE)

"""`headrace webhook endpoints`: where a tenant wants its events sent."""

from typing import Annotated

import typer

from headrace.command import ADMIN, API, KeyFile, Limit, Output, Url, call, path_segment
from headrace.output import Format, note, show_list, show_one
from headrace.webhooks.endpoint_actions import (
    PATH,
    EndpointId,
    backfill,
    disable,
    enable,
    ping,
    recover,
    rotate,
    stats,
)
from headrace.webhooks.endpoint_fields import (
    Description,
    Ed25519,
    Events,
    Headers,
    MaxInFlight,
    MinIntervalMs,
    Ordering,
    RateLimit,
    WebhookFormat,
    read_fields,
)

app = typer.Typer(no_args_is_help=True, help="Where your events are sent.")

_COLUMNS = ("id", "url", "events", "format", "disabledWhy", "createdAt")
_ADMIN_COLUMNS = ("id", "tenantId", "origin", "events", "format", "disabledWhy", "createdAt")


@app.command(name="list")
def list_(
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Of everybody, with the admin key.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant, with the admin key.")] = None,
    limit: Limit = 100,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print your endpoints, oldest first."""
    is_admin = all_tenants or tenant is not None
    path = "/admin/v1/webhook-endpoints" if is_admin else PATH
    filters = [] if tenant is None else [("tenantId", tenant)]
    key_name = ADMIN if is_admin else API
    page = call(lambda client: client.pages(path, filters, limit), url, key_file, output, key_name)
    show_list(page, _ADMIN_COLUMNS if is_admin else _COLUMNS, output)


@app.command()
def show(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one endpoint; secrets and the values of headers are never shown again."""
    path = f"{PATH}/{path_segment(endpoint_id)}"
    show_one(call(lambda client: client.get(path), url, key_file, output).body, output)


@app.command()
def create(
    target: Annotated[str, typer.Argument(metavar="URL", help="What is called.")],
    events: Events = None,
    form: WebhookFormat = None,
    ordering: Ordering = None,
    headers: Headers = None,
    rate_limit: RateLimit = None,
    min_interval_ms: MinIntervalMs = None,
    max_in_flight: MaxInFlight = None,
    ed25519: Ed25519 = None,
    description: Description = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Send nothing until it is enabled.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Create an endpoint and print it with its secret, which is shown this once."""
    body = read_fields(target, events, form, ordering, headers, rate_limit, min_interval_ms, max_in_flight, ed25519,
                   description)  # fmt: skip
    body |= {"disabled": True} if disabled else {}
    show_one(call(lambda client: client.post(PATH, body), url, key_file, output).body, output)
    note("keep the secret now: receivers check signatures with it, and it cannot be shown again")


@app.command()
def update(
    endpoint_id: EndpointId,
    target: Annotated[str | None, typer.Option("--to", metavar="URL", help="What is called from now on.")] = None,
    events: Events = None,
    form: WebhookFormat = None,
    ordering: Ordering = None,
    headers: Headers = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Send none of your own any more.")] = False,
    rate_limit: RateLimit = None,
    min_interval_ms: MinIntervalMs = None,
    max_in_flight: MaxInFlight = None,
    ed25519: Ed25519 = None,
    description: Description = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Change an endpoint; what is left out stays, events and headers are replaced as a whole."""
    if headers and no_headers:
        raise typer.BadParameter("one of the two", param_hint="--header or --no-headers")
    body = read_fields(target, events, form, ordering, headers, rate_limit, min_interval_ms, max_in_flight, ed25519,
                   description)  # fmt: skip
    body |= {"headers": {}} if no_headers else {}
    if not body:
        raise typer.BadParameter("nothing to change", param_hint="--to, --event or another")
    path = f"{PATH}/{path_segment(endpoint_id)}"
    show_one(call(lambda client: client.patch(path, body), url, key_file, output).body, output)


@app.command()
def delete(endpoint_id: EndpointId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Delete an endpoint; what waits for it is not sent."""
    path = f"{PATH}/{path_segment(endpoint_id)}"
    call(lambda client: client.delete(path), url, key_file, output)
    show_one({"id": endpoint_id, "deleted": True}, output)


app.command()(enable)
app.command()(disable)
app.command()(rotate)
app.command(name="test")(ping)
app.command()(recover)
app.command()(backfill)
app.command()(stats)

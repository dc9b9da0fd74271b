"""`headrace tenant`: create, list, update, pause, resume, limits. Needs the admin key."""

from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import ADMIN, KeyFile, Limit, Output, Reason, Url, call, path_segment
from headrace.output import Format, show_list, show_one
from headrace.pausing import add_pausing

app = typer.Typer(no_args_is_help=True, help="Who may submit, and how much.")

_PATH = "/admin/v1/tenants"
_LIMITS = ("queuedJobs", "queuedBytes", "concurrency", "userConcurrency", "submitsPerMinute", "gpuSecondsPerDay")

TenantId = Annotated[str, typer.Argument(help="Id of the tenant.")]


def _limit(about: str) -> object:
    return typer.Option(metavar="N|none", help=about)


@app.command()
def create(
    tenant_id: Annotated[str, typer.Argument(help="t_ and lower-case letters, digits, _ or -.")],
    tier: Annotated[str, typer.Option(help="free, standard or enterprise.")] = "standard",
    weight: Annotated[float, typer.Option(help="Share beside others of the tier.")] = 1.0,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Create a tenant and print it."""
    body: JsonObject = {"id": tenant_id, "tier": tier, "weight": weight, "reason": reason}
    made = call(lambda client: client.post(_PATH, body), url, key_file, output, ADMIN)
    show_one(made.body, output)


@app.command(name="list")
def list_(limit: Limit = 100, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print all tenants."""
    page = call(lambda client: client.pages(_PATH, [], limit), url, key_file, output, ADMIN)
    show_list(page, ("id", "tier", "weight", "paused", "createdAt"), output)


@app.command()
def update(
    tenant_id: TenantId,
    tier: Annotated[str | None, typer.Option(help="free, standard or enterprise.")] = None,
    weight: Annotated[float | None, typer.Option(help="Share beside others of the tier.")] = None,
    webhook_hosts: Annotated[
        list[str] | None,
        typer.Option("--webhook-host", help="Its webhooks go there only: app.example, *.app.example; repeatable."),
    ] = None,
    any_webhook_host: Annotated[bool, typer.Option("--any-webhook-host", help="Its webhooks go anywhere.")] = False,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Change tier, weight, or where webhooks may go; what is left out stays."""
    if webhook_hosts and any_webhook_host:
        raise typer.BadParameter("one of the two", param_hint="--webhook-host or --any-webhook-host")
    values = (("tier", tier), ("weight", weight), ("webhookHosts", webhook_hosts or None))
    given: JsonObject = {name: value for name, value in values if value is not None}
    given |= {"webhookHosts": None} if any_webhook_host else {}
    path, body = f"{_PATH}/{path_segment(tenant_id)}", given | {"reason": reason}
    show_one(call(lambda client: client.patch(path, body), url, key_file, output, ADMIN).body, output)


@app.command()
def limits(
    tenant_id: TenantId,
    queued_jobs: Annotated[str | None, _limit("Open jobs in a pool.")] = None,
    queued_bytes: Annotated[str | None, _limit("Bytes of their bodies.")] = None,
    concurrency: Annotated[str | None, _limit("Jobs running at once in a pool.")] = None,
    user_concurrency: Annotated[str | None, _limit("The same for each of its users.")] = None,
    submits_per_minute: Annotated[str | None, _limit("Jobs submitted in a minute, twice that after a pause.")] = None,
    gpu_seconds_per_day: Annotated[str | None, _limit("Device time in a pool from midnight to midnight, UTC.")] = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print a tenant's own limits, after changing those that are given; none takes one back."""
    values = (queued_jobs, queued_bytes, concurrency, user_concurrency, submits_per_minute, gpu_seconds_per_day)
    given = {name: _read_limit(value) for name, value in zip(_LIMITS, values, strict=True) if value is not None}
    path, body = f"{_PATH}/{path_segment(tenant_id)}", {"limits": given, "reason": reason}

    async def action(client: Client) -> JsonObject:
        return (await client.patch(path, body) if given else await client.get(path)).body

    show_one(call(action, url, key_file, output, ADMIN)["limits"], output)


add_pausing(
    app, _PATH,
    pause="Offer nothing of a tenant any more; what runs goes on, and it may still submit.",
    resume="Serve a tenant again.",
)  # fmt: skip


def _read_limit(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(f"{text!r} is neither a whole number nor none")
    return int(text)

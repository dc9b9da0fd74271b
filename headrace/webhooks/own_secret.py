"""`headrace webhook secret`: what signs the webhooks of jobs that name a webhookUrl."""

from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, API, KeyFile, Output, Reason, Url, call, path_segment
from headrace.output import Format, note, show_one

app = typer.Typer(no_args_is_help=True, help="What signs the webhooks of jobs that name a webhookUrl.")


@app.callback()
def secret() -> None:
    """What signs the webhooks of jobs that name a webhookUrl."""


@app.command()
def rotate(
    tenant: Annotated[str | None, typer.Option(help="Of this tenant, with the admin key.")] = None,
    overlap_s: Annotated[
        int | None,
        typer.Option("--overlap-s", min=0, help="The old secret signs, too, for so long.", show_default="a day"),
    ] = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Make a new secret and print it, this once; also for a tenant whose secret nobody knows."""
    body: JsonObject = {"reason": reason} | ({} if overlap_s is None else {"overlapSeconds": overlap_s})
    of_tenant = None if tenant is None else f"/admin/v1/tenants/{path_segment(tenant)}/webhook-secret/rotate"
    path, key_name = of_tenant or "/v1/webhook-secret/rotate", ADMIN if of_tenant else API
    show_one(call(lambda client: client.post(path, body), url, key_file, output, key_name).body, output)
    note("keep the secret now: it cannot be shown again; until oldSecretUntil both sign")

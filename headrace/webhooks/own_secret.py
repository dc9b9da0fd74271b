"""`headrace webhook secret`: what signs the webhooks of jobs that name a webhookUrl."""

from typing import Annotated

import typer

from headrace.command import ADMIN, API, KeyFile, Output, Reason, Url, path_segment, post_and_show
from headrace.output import Format, note
from headrace.webhooks.rotation import KEEP_IT, OverlapS, rotation

app = typer.Typer(no_args_is_help=True, help="What signs the webhooks of jobs that name a webhookUrl.")


@app.callback()
def secret() -> None:
    """What signs the webhooks of jobs that name a webhookUrl."""


@app.command()
def rotate(
    tenant: Annotated[str | None, typer.Option(help="Of this tenant, with the admin key.")] = None,
    overlap_s: OverlapS = None,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Make a new secret and print it, this once; also for a tenant whose secret nobody knows."""
    of_tenant = None if tenant is None else f"/admin/v1/tenants/{path_segment(tenant)}/webhook-secret/rotate"
    path, key_name = of_tenant or "/v1/webhook-secret/rotate", ADMIN if of_tenant else API
    post_and_show(path, rotation(overlap_s, reason), output, url, key_file, key_name)
    note(KEEP_IT)

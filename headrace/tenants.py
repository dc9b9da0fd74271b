"""`headrace tenant`: create and list. Needs the admin key."""

from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import ADMIN, KeyFile, Output, Url, call
from headrace.output import Format, show_list, show_one

app = typer.Typer(no_args_is_help=True, help="Who may submit, and how much.")


@app.command()
def create(
    tenant_id: Annotated[str, typer.Argument(help="t_ and lower-case letters, digits, _ or -.")],
    tier: Annotated[str, typer.Option(help="free, standard or enterprise.")] = "standard",
    weight: Annotated[int, typer.Option(min=1, help="Share beside others of the tier.")] = 1,
    reason: Annotated[str, typer.Option(help="Why; it goes into the log.")] = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Create a tenant and print it."""
    body: JsonObject = {"id": tenant_id, "tier": tier, "weight": weight, "reason": reason}
    made = call(lambda client: client.post("/admin/v1/tenants", body), url, key_file, output, ADMIN)
    show_one(made.body, output)


@app.command(name="list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print all tenants."""

    async def action(client: Client) -> JsonObject:
        return await client.pages("/admin/v1/tenants", [], limit)

    page = call(action, url, key_file, output, ADMIN)
    show_list(page, ("id", "tier", "weight", "createdAt"), output)

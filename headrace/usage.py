"""`headrace usage`: what was used, by day and model; with the admin key by tenant, too."""

import csv
import sys
from typing import Annotated

import typer

from headrace.client import JsonObject
from headrace.command import ADMIN, API, KeyFile, Output, Url, call
from headrace.output import Format, note, show_list

PAGE = 1_000
_NUMBERS = (
    "jobsCreated", "jobsCompleted", "jobsFailed", "jobsCancelled", "jobsExpired", "gpuMs", "loadMs", "artifactBytes",
    "deliveries", "deliveryAttempts", "final",
)  # fmt: skip


def usage(
    from_: Annotated[str | None, typer.Option("--from", metavar="DAY", help="First UTC day: 2026-11-01.")] = None,
    to: Annotated[str | None, typer.Option(metavar="DAY", help="The day after the last.")] = None,
    group_by: Annotated[
        str | None, typer.Option(metavar="NAMES", help="day, model, pool, and of all tenants tenantId; with commas.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only this model: name, or name@version.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant; needs the admin key.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All tenants; needs the admin key.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many lines at most.")] = 10_000,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print device time, loads, stored bytes, jobs by how they ended, and deliveries."""
    of_all = everybody or tenant is not None
    path, key_name = ("/admin/v1/usage", ADMIN) if of_all else ("/v1/usage", API)
    asked = {"from": from_, "to": to, "groupBy": group_by, "model": model, "tenantId": tenant}
    params = [(name, value) for name, value in asked.items() if value is not None]
    page = call(lambda client: client.pages(path, params, limit, PAGE), url, key_file, output, key_name)
    groups = ["day", "tenantId", "model"] if of_all else ["day", "model"]
    columns = (*(groups if group_by is None else [name for name in group_by.split(",") if name]), *_NUMBERS)
    if as_csv:
        _print_csv(page["data"], columns)
    else:
        show_list(page, columns, output)
    if page["hasMore"] and (as_csv or output is not Format.TABLE):
        note("more follow: raise --limit")


def _print_csv(lines: list[JsonObject], columns: tuple[str, ...]) -> None:
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line | {"final": str(line["final"]).lower()} for line in lines)

"""`headrace dlq`: jobs that failed for good, back to work or off the list. Needs the admin key."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headrace.client import Client, JsonObject, together
from headrace.command import ADMIN, KeyFile, Limit, Output, Url, call, path_segment
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.webhooks import deliveries
from headrace.webhooks.moments import MaybeSince, Until, read_range

app = typer.Typer(no_args_is_help=True, help="Jobs and webhooks that failed for good.")
app.add_typer(
    deliveries.app, name="webhooks", help="The same of webhooks, which are deliveries: list, show, redeliver."
)

_PATH = "/admin/v1/dlq"
_OPERATIONS = f"{_PATH}/operations"
_COLUMNS = ("id", "tenantId", "model", "code", "failedAt", "attempts", "run", "contentErased")
_DONE = ("id", "verb", "state", "done", "deferred", "failed", "ratePerSecond", "reason", "askedAt", "endedAt")
_COUNTED = ("dryRun", "matched", "erased", "sample")
_LOOK_S = 1.0

Ids = Annotated[list[str] | None, typer.Argument(help="Ids of jobs, job_...; none: those that the filters mean.")]
JobId = Annotated[str, typer.Argument(help="Id of the job, job_...")]
OperationId = Annotated[str, typer.Argument(help="Id of the operation, op_...")]
Pool = Annotated[str | None, typer.Option(help="Only of this pool.")]
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Model = Annotated[str | None, typer.Option(help="Only of this model: name, or name@version.")]
Code = Annotated[str | None, typer.Option(help="Only with this error: worker_lost, out_of_memory, poison ...")]
All = Annotated[bool, typer.Option("--all", help="All there are.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count them.")]
Rate = Annotated[float, typer.Option(min=0.01, max=1_000, help="So many a second at most.")]
Why = Annotated[str, typer.Option("--reason", help="Why; it goes into the log, of each job, too.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Until it has ended; it goes on by itself anyway.")]


@app.command(name="list")
def list_(
    pool: Pool = None,
    tenant: Tenant = None,
    model: Model = None,
    code: Code = None,
    since: MaybeSince = None,
    until: Until = None,
    limit: Limit = 50,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print dead letters, those that failed last first."""
    filters = [*_filters(pool, tenant, model, code, since, until).items()]
    show_list(call(lambda client: client.pages(_PATH, filters, limit), url, key_file, output, ADMIN), _COLUMNS, output)


@app.command()
def show(job_id: JobId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one, how it failed, and the job."""
    path = f"{_PATH}/{path_segment(job_id)}"
    show_one(call(lambda client: client.get(path), url, key_file, output, ADMIN).body, output)


@app.command()
def redrive(
    ids: Ids = None,
    pool: Pool = None,
    tenant: Tenant = None,
    model: Model = None,
    code: Code = None,
    since: MaybeSince = None,
    until: Until = None,
    everything: All = False,
    rate: Rate = 10.0,
    dry_run: DryRun = False,
    reason: Why = "",
    wait: Wait = True,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Take dead letters back to work: each a new run, under its tenant and limits; then follow how far that is."""
    question = _question(ids, _filters(pool, tenant, model, code, since, until), everything=everything)
    _act("redrive", question, rate, dry_run, reason, wait, output, url, key_file)


@app.command()
def discard(
    ids: Ids = None,
    pool: Pool = None,
    tenant: Tenant = None,
    model: Model = None,
    code: Code = None,
    since: MaybeSince = None,
    until: Until = None,
    everything: All = False,
    rate: Rate = 100.0,
    dry_run: DryRun = False,
    reason: Why = "",
    wait: Wait = True,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Take dead letters off the list; the jobs stay failed, and their events stay."""
    question = _question(ids, _filters(pool, tenant, model, code, since, until), everything=everything)
    _act("discard", question, rate, dry_run, reason, wait, output, url, key_file)


@app.command()
def operations(
    limit: Limit = 50, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:  # fmt: skip
    """Print redrives and discards: those under way, and those of the last day."""
    show_list(call(lambda client: client.pages(_OPERATIONS, [], limit), url, key_file, output, ADMIN), _DONE, output)


@app.command()
def operation(
    operation_id: OperationId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
) -> None:  # fmt: skip
    """Print one redrive or discard and how far it is."""
    path = f"{_OPERATIONS}/{path_segment(operation_id)}"
    show_one(call(lambda client: client.get(path), url, key_file, output, ADMIN).body, output)


@app.command()
def stop(
    operation_id: OperationId,
    reason: Why = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Go on with a redrive or discard no further; what it did stays."""
    path = f"{_OPERATIONS}/{path_segment(operation_id)}/stop"
    show_one(call(lambda client: client.post(path, {"reason": reason}), url, key_file, output, ADMIN).body, output)


def _act(
    verb: str, question: JsonObject, rate: float, dry_run: bool, reason: str, wait: bool,
    output: Format, url: str | None, key_file: Path | None,
) -> None:  # fmt: skip
    if not dry_run and not reason.strip():
        raise typer.BadParameter("says why, for the log", param_hint="--reason")
    body = question | {"ratePerSecond": rate, "dryRun": dry_run, "reason": reason}

    async def action(client: Client) -> JsonObject:
        if dry_run:
            return await _count(client, f"{_PATH}/{verb}", body)
        operation = (await client.request_once(f"{_PATH}/{verb}", body)).body
        while wait and operation["state"] == "in_progress":
            note(f"{operation['done']} done, {operation['deferred']} without room, {operation['failed']} failed")
            await asyncio.sleep(_LOOK_S)
            operation = (await client.get(f"{_OPERATIONS}/{operation['id']}")).body
        return operation

    operation = call(action, url, key_file, output, ADMIN)
    show_one(operation, output, _COUNTED if dry_run else _DONE)
    if operation["failed"]:
        some = ", ".join(f"{each['id']} ({each['code']})" for each in operation["failures"][:3])
        note(f"error: {operation['failed']} are left as they were: {some}")
        raise typer.Exit(Exit.FAILED_CHECK)


async def _count(client: Client, path: str, body: JsonObject) -> JsonObject:
    counted = (await client.post(path, body)).body
    while counted["hasMore"]:
        counted = together(counted, (await client.post(path, body | {"cursor": counted["nextCursor"]})).body)
    return counted


def _filters(
    pool: str | None, tenant: str | None, model: str | None, code: str | None, since: str | None, until: str | None
) -> dict[str, str]:
    given = {"pool": pool, "tenantId": tenant, "model": model, "code": code}
    return {name: value for name, value in given.items() if value is not None} | read_range(since, until)


def _question(ids: list[str] | None, filters: dict[str, str], *, everything: bool) -> JsonObject:
    if bool(ids) + bool(filters) + everything != 1:
        raise typer.BadParameter("name ids, or filters, or --all", param_hint="which ones")
    return {"ids": [path_segment(each) for each in ids]} if ids else {"filter": filters}

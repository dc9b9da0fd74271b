"""`headrace webhook deliveries`: what was sent, what came of it, and once more."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.client import Client, JsonObject, Problem
from headrace.command import ADMIN, API, KeyFile, Limit, Output, Reason, Url, call, path_segment
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.webhooks.moments import MaybeSince, Until, read_range

app = typer.Typer(no_args_is_help=True, help="What was sent, and what came of it.")

PATH, ADMIN_PATH = "/v1/webhook-deliveries", "/admin/v1/webhook-deliveries"
_COLUMNS = ("id", "state", "attempts", "lastOutcome", "eventType", "nextAttemptAt")
_ATTEMPTS = ("attempt", "at", "ms", "status", "outcome", "responseBody")
_COUNTS = ("dryRun", "matched", "redelivered", "failed", "sample")
_UNDELIVERED = frozenset({"exhausted", "gone", "held"})
_SAMPLE = 10

DeliveryId = Annotated[str, typer.Argument(help="Id of the delivery, dlv_...")]
Endpoint = Annotated[str | None, typer.Option(help="Only to this endpoint, wh_...")]
Job = Annotated[str | None, typer.Option(help="Only of this job.")]
Event = Annotated[str | None, typer.Option(help="Only of events of this type.")]
State = Annotated[str | None, typer.Option(help="Only in this state: waiting, delivered, exhausted, gone, held ...")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Of everybody, with the admin key.")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant, with the admin key.")]


@app.command(name="list")
def list_(
    endpoint: Endpoint = None,
    job: Job = None,
    event: Event = None,
    state: State = None,
    since: MaybeSince = None,
    until: Until = None,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    limit: Limit = 50,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print deliveries, those of the newest job first."""
    filters = _filters(endpoint, job, event, state, since, until)
    filters |= {} if tenant is None else {"tenantId": tenant}
    path, key_name = (ADMIN_PATH, ADMIN) if all_tenants or tenant is not None else (PATH, API)
    page = call(lambda client: client.pages(path, [*filters.items()], limit), url, key_file, output, key_name)
    show_list(page, _COLUMNS, output)


@app.command()
def show(delivery_id: DeliveryId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one delivery, what it sends, and each attempt with its answer."""
    path = f"{PATH}/{path_segment(delivery_id)}"

    async def action(client: Client) -> JsonObject:
        found = (await client.get(path)).body
        return found | {"attemptsMade": (await client.get(f"{path}/attempts")).body["data"]}

    found = call(action, url, key_file, output)
    if output is not Format.TABLE:
        show_one(found, output)
        return
    attempts = found.pop("attemptsMade")
    show_one(found, output)
    if attempts:
        show_list({"data": attempts}, _ATTEMPTS, output)


@app.command()
def redeliver(
    delivery_id: Annotated[str | None, typer.Argument(help="Id of the delivery, dlv_...", show_default=False)] = None,
    endpoint: Endpoint = None,
    job: Job = None,
    event: Event = None,
    state: State = None,
    since: MaybeSince = None,
    until: Until = None,
    all_tenants: AllTenants = False,
    tenant: Tenant = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    reason: Reason = "",
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Send one delivery again, or all since then that were given up or held (or are in --state)."""
    if (delivery_id is None) == (since is None):
        raise typer.BadParameter("name one, or a time", param_hint="DELIVERY_ID or --since")
    filters = _filters(endpoint, job, event, state, since, until)
    is_admin = all_tenants or tenant is not None
    if delivery_id is not None:
        if filters or dry_run or is_admin:
            raise typer.BadParameter("goes with --since, not with an id", param_hint="filters and --dry-run")
        path = f"{PATH}/{path_segment(delivery_id)}/redeliver"
        show_one(call(lambda client: client.post(path), url, key_file, output).body, output, _COLUMNS)
        return
    if is_admin:
        wanted = filters | ({} if tenant is None else {"tenantId": tenant})
        question: JsonObject = {"filter": wanted, "dryRun": dry_run, "reason": reason}
        operation = call(lambda client: _redeliver_all(client, question), url, key_file, output, ADMIN)
    else:
        mine = Own(filters, dry_run=dry_run)
        operation = call(mine.redeliver, url, key_file, output)
    show_one(operation, output, _COUNTS)
    if operation["failed"]:
        note(f"error: {operation['failed']} could not be sent again: {operation['failures'][:3]}")
        raise typer.Exit(Exit.FAILED_CHECK)


@dataclass(frozen=True, slots=True)
class Own:
    """Those of the caller that a filter means, one after the other."""

    filters: JsonObject
    dry_run: bool

    async def redeliver(self, client: Client) -> JsonObject:
        """Send them again, or only count; returns what became of them."""
        ids: list[str] = []
        failures: list[JsonObject] = []
        async for delivery_id in self._found(client):
            ids.append(delivery_id)
            if not self.dry_run:
                failures += await _redeliver_one(client, delivery_id)
        done = 0 if self.dry_run else len(ids) - len(failures)
        counts = {"dryRun": self.dry_run, "matched": len(ids), "redelivered": done, "failed": len(failures)}
        return {"object": "operation", "state": "completed"} | counts | {"failures": failures, "sample": ids[:_SAMPLE]}

    async def _found(self, client: Client) -> AsyncIterator[str]:
        """Yield ids, newest job first: what is planned meanwhile is not among them.

        Of several generations of one delivery, which lie side by side, one: else each call would double them.
        """
        page: JsonObject = {"hasMore": True, "nextCursor": None}
        last = ""
        while page["hasMore"]:
            cursor = [("cursor", str(page["nextCursor"]))] if page["nextCursor"] else []
            page = (await client.get(PATH, [*self.filters.items(), ("limit", "100"), *cursor])).body
            for delivery in page["data"]:
                event_and_endpoint = str(delivery["id"]).rpartition("_")[0]
                if event_and_endpoint == last:
                    continue
                if "state" in self.filters or delivery["state"] in _UNDELIVERED:
                    last = event_and_endpoint
                    yield str(delivery["id"])


async def _redeliver_one(client: Client, delivery_id: str) -> list[JsonObject]:
    try:
        await client.post(f"{PATH}/{delivery_id}/redeliver")
    except Problem as fault:
        if fault.status not in (404, 409):
            raise
        return [{"id": delivery_id, "code": fault.code}]
    return []


async def _redeliver_all(client: Client, question: JsonObject) -> JsonObject:
    operation = (await client.post(f"{ADMIN_PATH}/redeliver", question)).body
    while operation["hasMore"]:
        more = (await client.post(f"{ADMIN_PATH}/redeliver", question | {"cursor": operation["nextCursor"]})).body
        counts = {name: operation[name] + more[name] for name in ("matched", "redelivered", "failed", "failures")}
        operation = more | counts | {"sample": (operation["sample"] + more["sample"])[:_SAMPLE]}
    return operation


def _filters(
    endpoint: str | None, job: str | None, event: str | None, state: str | None, since: str | None, until: str | None
) -> JsonObject:
    given = {"endpointId": endpoint, "jobId": job, "eventType": event, "state": state}
    return {name: value for name, value in given.items() if value is not None} | read_range(since, until)

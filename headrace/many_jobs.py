"""`headrace jobs batch|update|cancel`: many jobs at once, and changes of jobs that are there."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import KeyFile, Output, Url, call, path_segment, read_input
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.strict_json import read_json

MOST_ITEMS, MOST_BYTES = 100, 900_000  # of one request
_JOB_FIELDS = ("id", "status", "priority", "metadata", "sequence")
_COUNTS = ("dryRun", "matched", "cancelled", "requested", "skipped", "failed", "sample")
_SEVERAL, _METADATA = "status", "metadata."


def batch(
    file: Annotated[Path, typer.Argument(help="Jobs: a JSON array, or one JSON object a line; - is standard input.")],
    idempotency_key: Annotated[str | None, typer.Option(help="Repeats with it make no job twice.")] = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Submit many jobs; exit code 1 when one of them was refused."""
    requests = list(_requests(_read_items(file)))
    if idempotency_key is not None and not idempotency_key.isprintable():
        raise typer.BadParameter("printable characters only, it is sent as a header", param_hint="--idempotency-key")

    async def action(client: Client) -> list[JsonObject]:
        return await client.submit_batch(requests, idempotency_key)

    items = call(action, url, key_file, output)
    if output is Format.TABLE:
        show_list({"data": [_row(item) for item in items]}, ("index", "status", "id", "problem"), output)
    else:
        show_list({"data": items, "hasMore": False, "nextCursor": None}, (), output)
    refused = sum(item["problem"] is not None for item in items)
    if refused:
        note(f"error: {refused} of {len(items)} were refused")
        raise typer.Exit(Exit.FAILED_CHECK)


def update(
    job_id: Annotated[str, typer.Argument(help="Id of the job, job_...")],
    priority: Annotated[str | None, typer.Option(help="low, normal, high or urgent.")] = None,
    metadata: Annotated[
        list[str] | None, typer.Option("--metadata", "-m", help="NAME=VALUE; all of them, replacing what is there.")
    ] = None,
    webhook_events: Annotated[
        list[str] | None,
        typer.Option("--webhook-event", help="What its webhookUrl hears of from now on; all of them, repeatable."),
    ] = None,
    if_match: Annotated[str | None, typer.Option(help="Only if the job still has had this many events.")] = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Change a job that has not ended."""
    fields: JsonObject = {} if priority is None else {"priority": priority}
    if metadata:
        fields["metadata"] = dict(_pair(text, "--metadata") for text in metadata)
    if webhook_events:
        fields["webhookEvents"] = webhook_events
    if not fields:
        raise typer.BadParameter("nothing to change", param_hint="--priority, --metadata or --webhook-event")
    headers = {} if if_match is None else {"If-Match": if_match if if_match == "*" else f'"{if_match.strip(chr(34))}"'}
    path = f"/v1/jobs/{path_segment(job_id)}"
    show_one(
        call(lambda client: client.patch(path, fields, headers=headers), url, key_file, output).body,
        output,
        _JOB_FIELDS,
    )


def cancel(
    job_ids: Annotated[list[str] | None, typer.Argument(help="Ids of jobs, job_...", show_default=False)] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", "-f", help="NAME=VALUE as in the API: status, model, userId, metadata.cart ..."),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="All that have not ended.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Ask for the end of jobs; at once for those that wait, at the next step for those that run."""
    if sum(map(bool, (job_ids, filters, all_of_them))) != 1:
        raise typer.BadParameter("name ids, or filters, or --all", param_hint="JOB_IDS, --filter or --all")
    if job_ids and len(job_ids) == 1 and not dry_run:
        path = f"/v1/jobs/{path_segment(job_ids[0])}/cancel"
        show_one(call(lambda client: client.post(path), url, key_file, output).body, output, _JOB_FIELDS)
        return
    question: JsonObject = {"ids": job_ids} if job_ids else {"filter": _filter(filters or [])}
    operation = call(lambda client: client.cancel_jobs(question | {"dryRun": dry_run}), url, key_file, output)
    show_one(operation, output, _COUNTS)
    if operation["failed"]:
        note(f"error: {operation['failed']} could not be cancelled: {json.dumps(operation['failures'][:3])}")
        raise typer.Exit(Exit.FAILED_CHECK)


def _filter(pairs: Sequence[str]) -> JsonObject:
    """Read NAME=VALUE filters as the body of the request has them; the server judges names and values."""
    found: JsonObject = {}
    for name, value in (_pair(text, "--filter") for text in pairs):
        if name == _SEVERAL:
            found.setdefault(name, []).append(value)
        elif name.startswith(_METADATA):
            found.setdefault("metadata", {})[name[len(_METADATA) :]] = value
        elif name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint="--filter")
        else:
            found[name] = value
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def _row(item: JsonObject) -> JsonObject:
    problem = item["problem"] or {}
    faults = "; ".join(f"{fault['pointer']}: {fault['message']}" for fault in problem.get("errors", ()))
    told = f"{problem.get('code')} {faults or problem.get('detail', '')}" if problem else None
    return {"index": item["index"], "status": item["status"], "id": (item["job"] or {}).get("id"), "problem": told}


def _read_items(file: Path) -> list[object]:
    try:
        found = _parse(read_input(file, "FILE"))
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="FILE") from fault
    if not found:
        raise typer.BadParameter("holds no job", param_hint="FILE")
    return found


def _parse(text: bytes) -> list[object]:
    """Read an array, an object with `jobs`, or lines."""
    try:
        whole = read_json(text)
    except json.JSONDecodeError:
        return [read_json(line) for line in text.splitlines() if line.strip()]
    if isinstance(whole, dict):
        jobs = whole.get("jobs")
        return jobs if isinstance(jobs, list) else [whole]
    return whole if isinstance(whole, list) else [whole]


def _requests(items: Sequence[object]) -> Iterator[list[object]]:
    """Cut the items into requests within the server's bounds; the same file is always cut alike."""
    request: list[object] = []
    size = 0
    for item in items:
        length = len(json.dumps(item))
        if request and (len(request) == MOST_ITEMS or size + length > MOST_BYTES):
            yield request
            request, size = [], 0
        request.append(item)
        size += length
    if request:
        yield request

"""`headrace jobs`: submit, get, list, watch, explain, retry, reproduce; `many_jobs` and `erasing` add the rest."""

import getpass
import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.client import Answer, Client, JsonObject
from headrace.command import KeyFile, Limit, Output, Url, call, path_segment, read_input
from headrace.erasing import erase
from headrace.exits import Exit
from headrace.job_logs import logs
from headrace.many_jobs import batch, cancel, update
from headrace.output import Format, note, show_list, show_one
from headrace.reproducing import reproduce
from headrace.strict_json import read_json
from headrace.waiting import explanation_rows, queue_text
from headrace.watching import watch as watch_job

app = typer.Typer(no_args_is_help=True, help="Submit jobs and follow them.")

JobId = Annotated[str, typer.Argument(help="Id of the job, job_...")]
_FIELDS = (
    "id",
    "status",
    "phase",
    "progress",
    "waits",
    "model",
    "userId",
    "priority",
    "attempt",
    "resultUrl",
    "error",
    "createdAt",
)
_DEFAULT_MODEL = "scenes"
_WATCH_LIMIT_S = 3600.0


@app.command()
def submit(
    prompt: Annotated[str, typer.Argument(help="What to make.")],
    model: Annotated[str, typer.Option(help="Name of the model, name@version for a certain one.")] = _DEFAULT_MODEL,
    user_id: Annotated[str | None, typer.Option(help="Your end user.", show_default="the name of this user")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="NAME=VALUE for the model; VALUE is JSON or text.")
    ] = None,
    body_file: Annotated[
        Path | None, typer.Option("--body", help="JSON file with more fields of the request; - is standard input.")
    ] = None,
    webhook_url: Annotated[str | None, typer.Option(help="Where to call back.")] = None,
    webhook_events: Annotated[
        list[str] | None, typer.Option("--webhook-event", help="Of what to tell there; repeatable.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high or urgent.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Repeats with it make no second job.")] = None,
    watch_it: Annotated[bool, typer.Option("--watch", "-w", help="Follow the job to its end.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Submit a job and print it."""
    job: JsonObject = _read_body(body_file) | {"prompt": prompt, "model": model}
    job["userId"] = user_id or job.get("userId") or _user_name()
    job["input"] = _input_of(job) | dict(_parse_pair(pair) for pair in inputs or [])
    job |= {"webhookUrl": webhook_url} if webhook_url else {}
    job |= {"webhookEvents": webhook_events} if webhook_events else {}
    job |= {"priority": priority} if priority else {}

    key = _one_line(idempotency_key)

    async def action(client: Client) -> Answer:
        return await client.submit(job, key)

    created = call(action, url, key_file, output).body
    if watch_it:
        _follow(str(created["id"]), _WATCH_LIMIT_S, output, url, key_file)
    else:
        _show(created, output)


@app.command()
def get(job_id: JobId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print one job; while it waits with its place in the queue."""
    _show(call(lambda client: client.get(f"/v1/jobs/{path_segment(job_id)}"), url, key_file, output).body, output)


@app.command()
def explain(job_id: JobId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Say why a job waits, what is before it, and what would have to change."""
    answer = call(lambda client: client.get(f"/v1/jobs/{path_segment(job_id)}/explain"), url, key_file, output)
    show_one(explanation_rows(answer.body) if output is Format.TABLE else answer.body, output)


@app.command(name="list")
def list_(
    status: Annotated[list[str] | None, typer.Option(help="Only jobs with this status; repeatable.")] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of this model.")] = None,
    user_id: Annotated[str | None, typer.Option(help="Only jobs of this end user.")] = None,
    limit: Limit = 50,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print your jobs, newest first."""
    filters = [("status", one) for one in status or []]
    filters += [(name, value) for name, value in (("model", model), ("userId", user_id)) if value]

    async def action(client: Client) -> JsonObject:
        return await client.pages("/v1/jobs", filters, limit)

    columns = ("id", "status", "progress", "model", "createdAt")
    show_list(call(action, url, key_file, output), columns, output)


@app.command()
def watch(
    job_id: JobId,
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="Give up after this long.")] = _WATCH_LIMIT_S,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Follow a job to its end; exit code 1 when it did not complete."""
    _follow(path_segment(job_id), timeout_s, output, url, key_file)


@app.command()
def retry(job_id: JobId, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Run a job again that failed, expired or was cancelled."""
    path = f"/v1/jobs/{path_segment(job_id)}/retry"
    _show(call(lambda client: client.post(path), url, key_file, output).body, output)


app.command()(reproduce)
app.command()(logs)
app.command()(batch)
app.command()(update)
app.command()(cancel)
app.command()(erase)


def _follow(job_id: str, limit_s: float, form: Format, url: str | None, key_file: Path | None) -> None:
    async def action(client: Client) -> JsonObject:
        last: JsonObject = {}
        async for last in watch_job(client, job_id, limit_s):
            if form is Format.NDJSON:
                show_one(last, form)
            elif form is Format.TABLE:
                waits = queue_text(last)
                seen = f"{last.get('phase') or ''} {last['progress']:g} %" if waits is None else waits
                note(f"{last['status']} {seen}".replace("  ", " "))
        return last

    job = call(action, url, key_file, form)
    if form is not Format.NDJSON:
        _show(job, form)
    if job["status"] != "completed":
        raise typer.Exit(Exit.FAILED_CHECK)


def _show(job: JsonObject, form: Format) -> None:
    show_one(job | {"waits": queue_text(job)} if form is Format.TABLE else job, form, _FIELDS)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return "cli"


def _input_of(body: JsonObject) -> JsonObject:
    found = body.get("input", {})
    if not isinstance(found, dict):
        raise typer.BadParameter("its input is not a JSON object", param_hint="--body")
    return found


def _one_line(text: str | None) -> str | None:
    if text is not None and not text.isprintable():
        raise typer.BadParameter("printable characters only, it is sent as a header", param_hint="--idempotency-key")
    return text


def _parse_pair(pair: str) -> tuple[str, object]:
    name, separator, value = pair.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--input")
    try:
        return name, read_json(value)
    except json.JSONDecodeError:
        return name, value
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--input") from fault


def _read_body(path: Path | None) -> JsonObject:
    if path is None:
        return {}
    try:
        found = read_json(read_input(path, "--body"))
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--body") from fault
    if not isinstance(found, dict):
        raise typer.BadParameter("not a JSON object", param_hint="--body")
    return found

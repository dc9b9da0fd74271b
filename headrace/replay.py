"""`headrace replay`: the past as a stream, as it stood, or under another policy. Nothing runs again or is written."""

import asyncio
import json
from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import ADMIN, API, KeyFile, Limit, Output, Url, call, path_segment
from headrace.event_stream import follow_events
from headrace.events.filters import Job, Model, Since, Type, Until, User, read_filters
from headrace.events.tailing import event_row
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one

app = typer.Typer(no_args_is_help=True, help="Show the past once more, or what would have been.")
POLL_S = 0.2
_PATH = "/v1/replays"
_WAITS = ("p50", "p95", "p99")
_COLUMNS = ("of", "jobs", *(f"{name}{side}S" for name in _WAITS for side in ("Before", "After")))


@app.command()
def stream(
    since: Since = None,
    until: Until = None,
    speed: Annotated[str, typer.Option(help="1 to 100 times as fast as it was, or max.")] = "max",
    job: Job = None,
    user: User = None,
    model: Model = None,
    type_: Type = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print the events of a stretch of the past, as far apart as they were, divided by the speed."""
    given = dict(read_filters(job, user, model, type_, since, until))
    body: JsonObject = {name: given.pop(name) for name in ("from", "to") if name in given}
    body |= {"filters": given, "speed": int(speed) if speed.isdigit() else speed}

    async def action(client: Client) -> None:
        made = (await client.post(_PATH, body)).body
        async for name, event, _ in follow_events(client, made["urls"]["stream"]):
            if name not in ("end", "gap"):
                typer.echo(event_row(event) if output is Format.TABLE else json.dumps(event))

    call(action, url, key_file, output)


@app.command()
def state(
    at: Annotated[str, typer.Option(help="A time (RFC 3339) or a position, included.")],
    job: Job = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print your jobs as they were, made again from the log."""
    body: JsonObject = {"mode": "project", "at": at, "filters": {"jobId": job} if job else {}}
    found = call(lambda client: _computed(client, body), url, key_file, output, API)
    result = _result_of(found, output)
    rows = [{"pool": pool, **each} for pool, told in result["pools"].items() for each in told["jobs"]]
    show_list({"data": rows, "hasMore": False, **result}, ("id", "status", "attempt", "sequence", "pool"), output)


@app.command()
def whatif(
    since: Since = None,
    until: Until = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KNOB=V", help="leadSeconds=30, hold=false ...; repeatable.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="TENANT=N", help="Weight of a tenant inside its tier; repeatable.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Name of the pool.", show_default="the first one")] = None,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Print how long jobs waited, and would have under another policy; needs the admin key."""
    times = dict(read_filters(None, None, None, None, since, until))
    policy = _pairs(set_, "--set") | {"weights": _pairs(weight, "--weight")}
    body: JsonObject = {"mode": "whatif", "policy": policy, **times} | ({"pool": pool} if pool else {})
    result = _result_of(call(lambda client: _computed(client, body), url, key_file, output, ADMIN), output)
    rows = [
        {"of": each["of"], "jobs": each["jobs"]}
        | {f"{name}{side}S": each[side.lower()][f"{name}S"] for name in _WAITS for side in ("Before", "After")}
        for each in result["waits"]
    ]
    show_list({"data": rows, "hasMore": False, **result}, _COLUMNS, output)


@app.command(name="list")
def list_(limit: Limit = 50, output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None) -> None:
    """Print your replays that the server you ask knows, newest first."""
    page = call(lambda client: client.get(_PATH), url, key_file, output).body
    show_list(page | {"data": page["data"][:limit]}, ("mode", "status", "speed", "createdAt", "id"), output)


@app.command()
def delete(
    replay_id: Annotated[str, typer.Argument(help="Id of the replay, rpl_...")],
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """End a replay."""
    path = f"{_PATH}/{path_segment(replay_id)}"
    call(lambda client: client.delete(path), url, key_file, Format.TABLE)


async def _computed(client: Client, body: JsonObject) -> JsonObject:
    """Ask for a replay that computes, and wait for its end."""
    found: JsonObject = (await client.post(_PATH, body)).body
    while found["status"] == "running":
        await asyncio.sleep(POLL_S)
        found = (await client.get(found["urls"]["self"])).body
    return found


def _result_of(found: JsonObject, form: Format) -> JsonObject:
    if found["status"] == "completed":
        return dict(found["result"])
    if form is Format.TABLE:
        problem = found["problem"] or {}
        note(f"error: {problem.get('detail', found['status'])} ({problem.get('code', '')})")
    else:
        show_one(found, form)
    raise typer.Exit(Exit.FAILED_CHECK)


def _pairs(texts: list[str] | None, flag: str) -> JsonObject:
    found: JsonObject = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not NAME=NUMBER", param_hint=flag) from None
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not NAME=NUMBER", param_hint=flag)
    return found

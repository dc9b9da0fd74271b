"""`headrace jobs reproduce`: run what a job ran once more, and say how near the result came."""

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from headrace.client import Client, JsonObject
from headrace.command import KeyFile, Output, Url, call, path_segment
from headrace.exits import Exit
from headrace.output import Format, show_one
from headrace.watching import watch

_FIELDS = ("id", "status", "of", "match", "distance", "changed", "error")
_NEAR = ("exact", "close")


async def _once(job: JsonObject) -> AsyncIterator[JsonObject]:
    yield job


def reproduce(
    job_id: Annotated[str, typer.Argument(help="Id of a job that completed.")],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the verdict.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="Give up after this long.")] = 3600.0,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Make a new job with the same files, code, seed and inputs; 5 if one of them is gone.

    With --wait: 0 if its result is exact or close, 1 if it is different or there is none.
    """
    path = f"/v1/jobs/{path_segment(job_id)}/reproduce"

    async def action(client: Client) -> JsonObject:
        job: JsonObject = (await client.post(path)).body
        async for seen in watch(client, str(job["id"]), timeout_s) if wait else _once(job):
            job = seen
        return job

    job = call(action, url, key_file, output)
    show_one(job | job["reproduction"] if output is Format.TABLE else job, output, _FIELDS)
    if wait and job["reproduction"]["match"] not in _NEAR:
        raise typer.Exit(Exit.FAILED_CHECK)

"""`headrace jobs erase`: take away for good what jobs were asked and answered."""

import sys
from typing import Annotated

import typer

from headrace.client import Client, JsonObject, together
from headrace.command import KeyFile, Output, Url, call, path_segment
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one

_FIELDS = ("jobId", "erasedAt", "complete", "removed")
_COUNTS = ("dryRun", "matched", "erased", "already", "open", "pending", "failed", "sample")
_ROUTE = "/v1/jobs/erase"


def erase(
    job_ids: Annotated[list[str] | None, typer.Argument(help="Ids of jobs, job_...", show_default=False)] = None,
    user: Annotated[str | None, typer.Option(help="All jobs of this end user, kept and archived alike.")] = None,
    reason: Annotated[str, typer.Option(help="Why; stays in the log for good, so name nobody.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the user's jobs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether you are sure.")] = False,
    output: Output = Format.TABLE,
    url: Url = None,
    key_file: KeyFile = None,
) -> None:
    """Erase prompts, inputs, results, logs and files of ended jobs; their events stay. It cannot be undone."""
    if (not job_ids) == (user is None):
        raise typer.BadParameter("name ids, or a user", param_hint="JOB_IDS or --user")
    if dry_run and job_ids:
        raise typer.BadParameter("counts the jobs of a user", param_hint="--dry-run")
    if not (yes or dry_run):
        _make_sure(f"{len(job_ids)} jobs" if job_ids else f"all jobs of user {user!r}")
    if user is not None:
        _erase_user({"userId": user, "reason": reason, "dryRun": dry_run}, output, url, key_file)
    else:
        _erase_jobs(job_ids or [], reason, output, url, key_file)


def _make_sure(what: str) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter("say that you are sure: nobody can be asked here", param_hint="--yes")
    typer.confirm(f"Erase what {what} were asked and answered, for good?", abort=True, err=True)


def _erase_jobs(job_ids: list[str], reason: str, output: Format, url: Url, key_file: KeyFile) -> None:
    async def action(client: Client) -> list[JsonObject]:
        params = [("reason", reason)] if reason else []
        return [(await client.delete(f"/v1/jobs/{path_segment(each)}", params)).body for each in job_ids]

    erased = call(action, url, key_file, output)
    if output is Format.TABLE and len(erased) == 1:
        show_one(erased[0], output, _FIELDS)
    else:
        show_list({"data": erased, "hasMore": False, "nextCursor": None}, _FIELDS, output)
    if not all(each["complete"] for each in erased):
        note("nothing of it is shown or sent any more; the archivist removes the rest, ask again to see it done")


def _erase_user(question: JsonObject, output: Format, url: Url, key_file: KeyFile) -> None:
    async def action(client: Client) -> JsonObject:
        operation: JsonObject = (await client.post(_ROUTE, question)).body
        while operation["hasMore"]:
            then = (await client.post(_ROUTE, question | {"cursor": operation["nextCursor"]})).body
            operation = together(operation, then)
        return operation

    operation = call(action, url, key_file, output)
    show_one(operation, output, _COUNTS)
    if operation["open"]:
        note(f"{operation['open']} have not ended; cancel them, then erase again")
    if operation["failed"]:
        note(f"error: {operation['failed']} could not be erased: {operation['failures'][:3]}; erase again")
    if operation["failed"] or (operation["open"] and not operation["dryRun"]):
        raise typer.Exit(Exit.FAILED_CHECK)

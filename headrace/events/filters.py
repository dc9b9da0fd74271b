"""Which events: the flags of the commands that read them."""

from typing import Annotated

import typer

from headrace.webhooks.moments import read_moment

Job = Annotated[str | None, typer.Option(help="Only of this job.")]
User = Annotated[str | None, typer.Option(help="Only of jobs of this user.")]
Model = Annotated[str | None, typer.Option(help="Only of jobs of this model: its name, or name@version.")]
Type = Annotated[
    str | None, typer.Option("--type", help='Only of these types, with commas between: job.failed, "job.*" ...')
]
Since = Annotated[str | None, typer.Option("--since", help="From then on; RFC 3339, or how long ago: 2h, 30m, 1d.")]
Until = Annotated[str | None, typer.Option(help="Before then; the same.")]

Params = list[tuple[str, str]]


def read_filters(
    job: str | None, user: str | None, model: str | None, type_: str | None, since: str | None, until: str | None
) -> Params:
    """Return the filters as the API takes them; a time that is none ends the program with a usage error."""
    bounds = {"from": ("--since", since), "to": ("--until", until)}
    times = {name: read_moment(text, flag) for name, (flag, text) in bounds.items() if text is not None}
    given = {"jobId": job, "userId": user, "model": model, "type": type_} | times
    return [(name, value) for name, value in given.items() if value is not None]

"""`pause` and `resume`, commands of everything that the admin key can pause."""

from collections.abc import Callable
from typing import Annotated

import typer

from headrace.command import ADMIN, KeyFile, Output, Reason, Url, call, path_segment
from headrace.output import Format, show_one

Name = Annotated[str, typer.Argument(help="Which one, as `list` shows it.")]


def add_pausing(app: typer.Typer, path: str, *, pause: str, resume: str, also: str = "") -> None:
    """Add both commands to a group.

    Args:
        path: of all that it lists, on the server.
        pause, resume: what the commands say about themselves.
        also: what a name may have in it beside letters, digits, _ and -.
    """
    app.command("pause", help=pause)(_switch(path, "pause", also))
    app.command("resume", help=resume)(_switch(path, "resume", also))


def _switch(path: str, verb: str, also: str) -> Callable[..., None]:
    def switch(
        name: Name, reason: Reason = "", output: Output = Format.TABLE, url: Url = None, key_file: KeyFile = None
    ) -> None:
        target = f"{path}/{path_segment(name, also)}/{verb}"
        body = {"reason": reason}
        show_one(call(lambda client: client.post(target, body), url, key_file, output, ADMIN).body, output)

    return switch

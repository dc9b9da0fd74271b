"""What every command of the command line shares: its options, its client, its errors and exit codes."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from contracts.errors import ConfigError, HeadraceError, Unavailable
from headrace.client import Client, JsonObject, Problem, Unreachable
from headrace.connection import BadAddress, NoKey, find_connection
from headrace.exits import Exit, exit_for_status
from headrace.output import Format, note, show_one, show_problem

T = TypeVar("T")

Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
Url = Annotated[str | None, typer.Option("--url", help="Address of the server. [HEADRACE_CLIENT__URL]")]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="File with the key, or a keys.json. [HEADRACE_CLIENT__KEY_FILE]")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it goes into the log.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]

API = "apiKey"
ADMIN = "adminKey"


def call(
    action: Callable[[Client], Awaitable[T]], url: str | None, key_file: Path | None, form: Format, key_name: str = API
) -> T:
    """Run `action` with a client; every failure ends the program with its message and its exit code."""

    async def run() -> T:
        connection = find_connection(url, key_file, os.environ, key_name=key_name)
        async with Client(connection.url, connection.key) as client:
            return await action(client)

    try:
        return asyncio.run(run())
    except Problem as fault:
        show_problem(fault, form)
        raise typer.Exit(exit_for_status(fault.status)) from None
    except NoKey as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.AUTH) from None
    except BadAddress as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.USAGE) from None
    except Unreachable as fault:
        note(f"error: cannot reach {fault}; is `headrace up` running?")
        raise typer.Exit(Exit.UNAVAILABLE) from None
    except TimeoutError:
        note("error: the job has not ended and goes on; `headrace jobs watch` follows it, longer with --timeout-s")
        raise typer.Exit(Exit.UNAVAILABLE) from None


def post_and_show(
    path: str, body: JsonObject | None, form: Format, url: str | None, key_file: Path | None, key_name: str = API
) -> None:
    """Ask for something to be done, and print the answer."""
    show_one(call(lambda client: client.post(path, body), url, key_file, form, key_name).body, form)


def path_segment(text: str, also: str = "") -> str:
    """An id that stays one segment of a path, whatever was typed; anything else is a usage error.

    Args:
        also: what it may have in it beside letters, digits, _ and -; not at its beginning.
    """
    if not text.isascii() or text[:1] in also or any(not (one.isalnum() or one in "_-" + also) for one in text):
        note(f"error: {text!r} is not an id")
        raise typer.Exit(Exit.USAGE)
    return text


def read_input(path: Path, hint: str) -> bytes:
    """What a file holds, or standard input for -; one that cannot be read is a usage error."""
    try:
        return typer.get_binary_stream("stdin").read() if str(path) == "-" else path.read_bytes()
    except RuntimeError:  # it was closed before we began
        raise typer.BadParameter("there is no standard input", param_hint=hint) from None
    except OSError as fault:
        raise typer.BadParameter(f"{path} cannot be read: {fault.strerror}", param_hint=hint) from None


def exit_for_error(error: HeadraceError) -> Exit:
    """The exit code for an error of our own."""
    if isinstance(error, ConfigError):
        return Exit.USAGE
    return Exit.UNAVAILABLE if isinstance(error, Unavailable) else Exit.FAILED_CHECK

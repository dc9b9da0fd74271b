"""What a command prints: a table for people, JSON or one JSON object per line for programs.

Promises that standard output holds nothing but the answer; remarks and errors go to standard error. JSON is
what the API said, unchanged.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.client import JsonObject, Problem

PIPE_WIDTH = 200
"""Columns of a table that goes into a file or pipe: ids must not be cut."""


# What a terminal obeys, or what turns text around: texts of authors, callers and foreign readers may hold it.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Format(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"


def show_list(page: JsonObject, columns: Sequence[str], form: Format) -> None:
    """Print a list answer `{data, hasMore, nextCursor}`; a table shows the named fields."""
    if form is Format.JSON:
        _print_json(page, indent=True)
    elif form is Format.NDJSON:
        for item in page["data"]:
            _print_json(item)
    else:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in columns:
            table.add_column(name, no_wrap=name != columns[-1])  # what is too wide is broken there; ids never are cut
        for item in page["data"]:
            table.add_row(*(Text(_text(item.get(name))) for name in columns))
        answers().print(table)
        if page.get("hasMore"):
            note("more follow: raise --limit")


def show_one(item: JsonObject, form: Format, fields: Sequence[str] = ()) -> None:
    """Print one object; a table shows `fields`, or all of them."""
    if form is not Format.TABLE:
        _print_json(item, indent=form is Format.JSON)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name in fields or item:
        table.add_row(name, Text(_text(item.get(name))))
    answers().print(table)


def show_problem(problem: Problem, form: Format) -> None:
    """Print why the server refused, on standard error."""
    if form is not Format.TABLE:
        typer.echo(orjson.dumps(problem.document).decode(), err=True)
        return
    note(plain(f"error: {problem} ({problem.code})"))
    for fault in _faults(problem.document):
        note(plain(f"  {fault.get('pointer', '')}: {fault.get('message', '')}"))
    if problem.retry_after_s is not None:
        note(f"  try again in {problem.retry_after_s:g} s")


def plain(text: str) -> str:
    """Return text that moves no cursor and colours nothing.

    >>> plain("a\\x1b[2Jb\\x9b31m\\n")
    'a\ufffd[2Jb\ufffd31m\\n'
    """
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def note(text: str) -> None:
    """Print a remark on standard error."""
    typer.echo(text, err=True)


def answers() -> Console:
    """The console for answers; wide when nobody looks at it, so that nothing is cut."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def _faults(document: JsonObject) -> list[Mapping[str, object]]:
    faults = document.get("errors")
    return [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict | list):
        return plain(orjson.dumps(value).decode())
    return plain(str(value))


def _print_json(item: JsonObject, *, indent: bool = False) -> None:
    typer.echo(orjson.dumps(item, option=orjson.OPT_INDENT_2 if indent else 0).decode())

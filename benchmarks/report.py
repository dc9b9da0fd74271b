"""Rows to the table of README.md. Pure.

Replaces what stands between the two markers and nothing else; text without both markers is refused.
"""

from collections.abc import Sequence

from benchmarks.figures import Row

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
_HEAD = ("| what | Headrace | baseline in the same run | ratio | bar |", "| --- | --- | --- | --- | --- |")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [f"| {row.what} | {row.product} | {row.baseline} | {row.ratio} | {_bar(row)} |" for row in rows]
    return "\n".join((*_HEAD, *lines))


def section(rows: Sequence[Row], machine: str, date: str, command: str) -> str:
    """Return everything that stands between the markers."""
    origin = (
        f"Measured on {date} by `{command}` on {machine}. Median of the rounds, in brackets the lowest and the highest."
    )
    return f"{table(rows)}\n\n{origin}"


def splice(text: str, new: str) -> str:
    """Put `new` between the markers of `text`. Raises ValueError without them.

    >>> splice("a <!-- bench -->old<!-- /bench --> b", "new")
    'a <!-- bench -->\\nnew\\n<!-- /bench --> b'
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def _bar(row: Row) -> str:
    if row.holds is None:
        return row.bar
    return f"{row.bar}: {'holds' if row.holds else '**missed**'}"

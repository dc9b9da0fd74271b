"""The history of a job as a table, from its events alone. Pure."""

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from headrace.client import JsonObject

_TELLING = (
    *("device", "attempt", "model", "phase", "progress", "step", "bytes", "ms", "gpuMs"),
    *("variant", "name", "reason", "how", "error"),
)


def timeline_table(events: Sequence[JsonObject]) -> Table:
    """One row per event: when after the first, number, type, source and what it says."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("+ms", "n", "event", "source", "says"):
        table.add_column(title, justify="right" if title in ("+ms", "n") else "left", no_wrap=title != "says")
    for event in events:
        source = str(event["source"]).partition("/")[0]
        cells = (str(elapsed_ms(events[0], event)), str(event["sequence"]), event["type"], source)
        table.add_row(*map(Text, cells), Text(telling(event["data"])))
    return table


def elapsed_ms(first: JsonObject, event: JsonObject) -> int:
    """Milliseconds between the recording of two events.

    >>> elapsed_ms({"time": "2026-11-29T23:00:00.123Z"}, {"time": "2026-11-29T23:00:01.456Z"})
    1333
    """
    return round((_time(event) - _time(first)).total_seconds() * 1000)


def telling(data: JsonObject) -> str:
    """The few fields of an event that a person wants to read.

    >>> telling({"progress": 50, "step": 4, "offerId": "x", "phase": None})
    'progress=50 step=4'
    """
    data = data | data.get("artifact", {})
    return " ".join(f"{name}={data[name]}" for name in _TELLING if data.get(name) is not None)


def _time(event: JsonObject) -> datetime:
    return datetime.fromisoformat(str(event["time"]).replace("Z", "+00:00"))

"""Exported events as a Parquet file, a row each, for whoever analyses them (extra `parquet`).

Promises: whole or not at all, as the export it is made of; memory does not grow with it. The file's metadata carry
`headrace.count`, `headrace.sha256` (of the lines it was made of) and `headrace.nextCursor`. It is for analysis: what
`headrace events import` takes is NDJSON.
"""

from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from headrace.events.exported import Exported

ROWS = 5_000  # of a row group
HINT = "Parquet needs the extra `parquet`: pip install 'headrace[parquet]'"
_TEXTS = ("id", "type", "position", "subject", "tenantId", "source", "correlationId", "hash")
_NUMBERS = {"version": "int32", "sequence": "int64", "fence": "int64", "attempt": "int32"}
_TIMES = ("time", "recordedTime")

try:
    import pyarrow as arrow
    import pyarrow.parquet as pq

    IS_THERE = True
except ImportError:
    IS_THERE = False


def _schema() -> Any:
    texts = [(name, arrow.string()) for name in _TEXTS]
    numbers = [(name, arrow.type_for_alias(kind)) for name, kind in _NUMBERS.items()]
    times = [(name, arrow.timestamp("ms", tz="UTC")) for name in _TIMES]
    rest = [("actorType", arrow.string()), ("actorId", arrow.string()), ("data", arrow.string())]
    return arrow.schema([*texts, *numbers, *times, *rest])


class ParquetSink:
    """Takes lines and makes rows of them."""

    def __init__(self, file: BinaryIO) -> None:
        self._schema = _schema()
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._writer.close()

    def line(self, line: bytes) -> None:
        """Take one event."""
        self._waiting.append(orjson.loads(line))
        if len(self._waiting) >= ROWS:
            self._flush()

    def end(self, exported: Exported) -> None:
        """Take what the last line of the export says."""
        self._flush()
        told = {f"headrace.{name}": str(exported.end[name]) for name in ("count", "sha256", "nextCursor")}
        self._writer.add_key_value_metadata(told)

    def _flush(self) -> None:
        events, self._waiting = self._waiting, []
        if events:
            columns = [_column(field, events) for field in self._schema]
            self._writer.write_table(arrow.Table.from_arrays(columns, schema=self._schema))


def _column(field: Any, events: list[dict[str, Any]]) -> Any:
    name = field.name
    if name == "data":
        return arrow.array([orjson.dumps(event["data"]).decode() for event in events], field.type)
    if name.startswith("actor"):
        return arrow.array([event["actor"][name.removeprefix("actor").lower()] for event in events], field.type)
    values = [event.get(name) for event in events]
    return arrow.array(values).cast(field.type) if name in _TIMES else arrow.array(values, field.type)

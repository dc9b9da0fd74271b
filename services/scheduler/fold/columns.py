"""Records of one kind as columns, a list for each field, and back. Pure.

Made to be read fast: whoever takes over reads it while nobody leads. Most fields say the same of most records: a value
that all share stands once, one of few stands once with numbers beside it. Records come back in the order they went in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from itertools import repeat
from typing import Any, TypeVar

Kind = TypeVar("Kind")
REPEATS = 4  # a value stands for so many records at least, or each is written out
Column = dict[str, Any]  # {"same": value}, {"of": values, "at": numbers} or {"each": values}
Read = Mapping[str, Callable[[Any], Any]]  # of fields whose values are not plain JSON


def pack(kind: type, records: Sequence[object], leave_out: Sequence[str] = ()) -> dict[str, Column]:
    """Return the columns of dataclass records by field name."""
    names = [field.name for field in fields(kind) if field.name not in leave_out]
    return {name: _column([getattr(record, name) for record in records]) for name in names}


def unpack(kind: type[Kind], count: int, columns: Mapping[str, Column], read: Read) -> list[Kind]:
    """Return `count` records; a field without a column has its default. Raises TypeError, ValueError, KeyError..."""
    known = fields(kind)  # type: ignore[arg-type]
    if unknown := columns.keys() - {field.name for field in known}:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    return [
        kind(*row) for row in zip(*(_values(field, count, columns, read) for field in known), strict=True)
    ]  # fmt: skip


def _column(values: list[Any]) -> Column:
    distinct = list(dict.fromkeys(values))
    if len(distinct) == 1:
        return {"same": distinct[0]}
    if len(distinct) * REPEATS > len(values):
        return {"each": values}
    number_of = {value: number for number, value in enumerate(distinct)}
    return {"of": distinct, "at": [number_of[value] for value in values]}


def _values(field: "Field[Any]", count: int, columns: Mapping[str, Column], read: Read) -> Iterable[Any]:
    column, convert = columns.get(field.name), read.get(field.name)
    if column is None:
        return _defaults(field, count)
    if "same" in column:
        return repeat(column["same"] if convert is None else convert(column["same"]), count)
    each: list[Any] = column["of" if "of" in column else "each"]
    each = each if convert is None else list(map(convert, each))
    return map(each.__getitem__, column["at"]) if "of" in column else each


def _defaults(field: "Field[Any]", count: int) -> Iterable[Any]:
    if field.default_factory is not MISSING:
        return (field.default_factory() for _ in range(count))
    if field.default is MISSING:
        raise KeyError(field.name)
    return repeat(field.default, count)

"""Read one TOML table with types: note every wrong value at its place, return a stand-in, read on.

Promises: a fault says where, what was expected and never repeats the value (it may be a misplaced secret).
Knows nothing about models; `models.py` decides which keys a table has.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

from contracts.ids import is_pool_name

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Table:
    """One TOML table; `place` is its dotted name, "" for the whole file."""

    def __init__(self, values: Mapping[str, object], place: str, faults: list[str]) -> None:
        self._values, self._place, self.faults = values, place, faults

    def fault(self, key: str, text: str) -> None:
        """Note `text` at `key` of this table; "" means the table itself."""
        self.faults.append(f"{self._at(key)}: {text}")

    def refuse_unknown(self, known: frozenset[str]) -> None:
        """Note every key that nobody will read."""
        for key in self._values:
            if key not in known:
                self.fault(key, f"is not a key of this table; it takes {', '.join(sorted(known))}")

    def tables(self, key: str) -> list[tuple[str, "Table"]]:
        """Return the tables below `key` with their names, in the order of the file."""
        found = []
        for name, values in self._mapping(key).items():
            if isinstance(values, dict):
                found.append((name, Table(values, self._at(f"{key}.{name}"), self.faults)))
            else:
                self.fault(f"{key}.{name}", f"must be a table; write [{self._at(key)}.{name}]")
        return found

    def table(self, key: str) -> "Table":
        """Return the one table at `key`, empty where it is not there."""
        return Table(self._mapping(key), self._at(key), self.faults)

    def text(self, key: str, default: str | None = None, shape: re.Pattern[str] | None = None) -> str:
        """Read text, `shape` being the whole of what it may be; without a default it is required."""
        value = self._values.get(key, default)
        if value is None or (value == "" and default is None):
            self.fault(key, "is missing")
        elif not isinstance(value, str) or "\0" in value:
            self.fault(key, f"must be text in quotes, not {_kind(value)}")
        elif shape is not None and not shape.fullmatch(value):
            self.fault(key, f"must look like {shape.pattern}")
        else:
            return value
        return ""

    def whole_or_none(self, key: str, least: int) -> int | None:
        """Read a whole number of `least` or more, None where the key is not there."""
        return self.whole(key, None, least) if key in self._values else None

    def whole(self, key: str, default: int | None, least: int) -> int:
        """Read a whole number of `least` or more; without a default it is required."""
        value = self._values.get(key, default)
        if value is None:
            self.fault(key, f"is missing; write a whole number of {least} or more")
        elif not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.fault(key, f"must be a whole number of {least} or more, not {_kind(value)}")
        else:
            return value
        return least

    def seconds(self, key: str, default: float | None) -> float | None:
        """Read a duration above 0."""
        value = self._values.get(key, default)
        if key not in self._values:
            return default
        # TOML knows inf and nan: neither is a limit.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self.fault(key, f"must be a number of seconds above 0, not {_kind(value)}")
        return default

    def flag(self, key: str) -> bool:
        """Read true or false, false when the key is not there."""
        value = self._values.get(key, False)
        if isinstance(value, bool):
            return value
        self.fault(key, f"must be true or false, not {_kind(value)}")
        return False

    def pools(self, key: str, default: str) -> tuple[str, ...]:
        """Read a list of pool names, never empty, each once."""
        value = self._values.get(key, [default])
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            self.fault(key, f'must be a list of one or more names in quotes, like ["{default}"]')
            return (default,)
        for name in value:
            if not is_pool_name(name):
                self.fault(key, "a pool name is 1 to 32 of a-z, 0-9 and -, and starts with a letter")
        if len(set(value)) < len(value):
            self.fault(key, "names a pool twice")
        return tuple(value)

    def texts(self, key: str) -> Mapping[str, str]:
        """Read a table of environment variables."""
        found = {}
        for name, value in self._mapping(key).items():
            if not _VARIABLE.fullmatch(name):
                self.fault(key, "the name of a variable is letters, digits and _, and starts with no digit")
            elif not isinstance(value, str) or "\0" in value:
                self.fault(f"{key}.{name}", f"must be text in quotes, not {_kind(value)}")
            else:
                found[name] = value
        return MappingProxyType(found)

    def names(self, key: str) -> tuple[str, ...] | None:
        """Read a list of texts, None when the key is not there."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self.fault(key, 'must be a list of names in quotes, like ["steps"]')
        return ()

    def wholes(self, key: str, least: int) -> Mapping[str, int]:
        """Read a table of whole numbers, like `resources = { moderation = 1 }`."""
        inner = self.table(key)
        return {name: inner.whole(name, None, least) for name in inner._values}

    def grid(self, key: str) -> Mapping[str, tuple[int | float, ...]]:
        """Read a table of lists of numbers above 0, like `grid = { size = [256, 512] }`; ascending, each once."""
        found = {}
        for name, values in self._mapping(key).items():
            if (
                isinstance(values, list)
                and values
                and all(_is_number(value) and 0 < value < math.inf for value in values)
            ):
                found[name] = tuple(sorted(set(values)))
            else:
                self.fault(f"{key}.{name}", "must be a list of numbers above 0, like [256, 512]")
        return MappingProxyType(found)

    def _at(self, key: str) -> str:
        return ".".join(part for part in (self._place, key) if part)

    def _mapping(self, key: str) -> Mapping[str, object]:
        value = self._values.get(key, {})
        if isinstance(value, dict):
            return value
        self.fault(key, f"must be a table, not {_kind(value)}")
        return {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: object) -> str:
    """Name what stands there; text is not repeated, since it may be a secret in the wrong place."""
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, str):
        return "text"
    return "a table" if isinstance(value, dict) else "a list or a date"

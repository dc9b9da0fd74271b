"""Is what the archivist has counted what the log says? Pure.

Promises: exact at the position that was counted, whatever is counted meanwhile. Where the log begins later than the
counting did, days before it, and jobs that began before it, cannot be told: then nothing is claimed.
"""

from collections.abc import Iterator

from contracts.positions import entry_key
from contracts.store.log import Poison
from contracts.store.usage import Look
from contracts.times import day_text
from contracts.usage.fold import Owner, UsageFold, learn, write_flights
from contracts.usage.rows import Key, Row, write_row
from contracts.wire import Entry

Difference = tuple[str, str | None, str | None]


class UsageAudit:
    """Give it a look at all rows, taken before anything else is read, then every entry of the log in order."""

    def __init__(self, look: Look) -> None:
        self._look, self._upto = look, entry_key(look.counted.upto)
        self._fold, self._owners = UsageFold(), dict[str, Owner]()

    def take(self, entry: Entry | Poison) -> None:
        """Fold one entry, if it was counted when the rows were looked at."""
        is_counted = entry_key(self._look.counted.since) < entry_key(entry.position) <= self._upto
        if is_counted and isinstance(entry, Entry):
            self._fold.apply(entry, self._owners.get(entry.subject))
            learn(self._owners, entry)

    @property
    def count(self) -> int:
        """How many rows were looked at."""
        return len(self._look.rows)

    def differing(self) -> dict[Key, Row | None]:
        """Return the rows that are not what the log says, as they should be; None: there should be none."""
        first = self._look.counted.first
        told = {key: row for key, row in self._fold.rows.items() if key.day >= first}
        found: dict[Key, Row | None] = {key: row for key, row in told.items() if self._look.rows.get(key) != row}
        strange = {key for key in self._look.rows.keys() - told.keys() if key.day >= first}
        return found | dict.fromkeys(strange)

    @property
    def flights(self) -> str:
        """The attempts that were under way where the counting stood, as they should be kept."""
        return write_flights(self._fold.flights)

    def differences(self) -> Iterator[Difference]:
        """Yield (row, what the log says, what is counted), in the order of days."""
        for key, row in sorted(self.differing().items()):
            live = self._look.rows.get(key)
            name = f"{day_text(key.day)} {key.field}"
            yield name, None if row is None else write_row(row), None if live is None else write_row(live)
        if self._look.counted.flights not in ("", self.flights):
            yield "attempts under way", self.flights, self._look.counted.flights

    def begins_late(self, oldest: str) -> bool:
        """Whether the log begins after the counting did, so that nothing can be claimed."""
        return entry_key(oldest) > entry_key(self._look.counted.since)

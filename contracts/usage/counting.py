"""Folds what tenants used as it is read: entries of archive and log in, rows out, with the owners of jobs found."""

from collections.abc import Sequence

from contracts.archive import Archive
from contracts.store import Store
from contracts.store.records import Record
from contracts.store.usage import Counted
from contracts.usage.fold import UsageFold, read_flights
from contracts.usage.owners import Owners
from contracts.wire import Entry


class Counting:
    """One pool, from where it is counted already on."""

    def __init__(self, store: Store, archive: Archive, pool: str, counted: Counted) -> None:
        self._owners = Owners(store, archive, pool)
        self.fold = UsageFold(counted.upto, read_flights(counted.flights))

    async def take(self, records: Sequence[Record]) -> None:
        """Take in the next records. Raises Unavailable, Corrupt: then some are counted, so begin again."""
        entries = [entry for record in records if isinstance(entry := record.entry(), Entry)]
        owners = await self._owners.of(entries)
        for entry in entries:
            self.fold.apply(entry, owners.get(entry.subject))
        self.fold.position = records[-1].position

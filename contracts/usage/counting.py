"""Folds what tenants used as it is read: entries of archive and log in, rows out, with the owners of jobs found."""

from collections.abc import Sequence

from contracts.archive import Archive
from contracts.archive.stories import PoolJobs
from contracts.store import Store
from contracts.store.log import Poison
from contracts.store.usage import Counted
from contracts.usage.fold import Owner, UsageFold, needs_owner, read_flights
from contracts.wire import Entry


class Counting:
    """One pool, from where it is counted already on."""

    def __init__(self, store: Store, archive: Archive, pool: str, counted: Counted) -> None:
        self._jobs = PoolJobs(store, archive, pool)
        self.fold = UsageFold(counted.upto, read_flights(counted.flights))

    async def take(self, read: Sequence[Entry | Poison]) -> None:
        """Take in what was read next. Raises Unavailable, Corrupt; then nothing of it is counted."""
        entries = [each for each in read if isinstance(each, Entry)]
        owned = [entry for entry in entries if needs_owner(entry)]
        owners = await self._jobs.owners(owned, entries, with_models=True)
        for entry in entries:
            owner = owners.get(entry.subject)
            self.fold.apply(entry, None if owner is None else Owner(owner.tenant_id, owner.model or ""))
        self.fold.position = read[-1].position

"""Is what the archivist has counted what the log says? Beside `contracts.audit.verify`, which gives every entry.

Promises: exact at the position up to which it was counted when the audit began, whatever is counted meanwhile; what is
set right is set right by the difference, so that it may have gone on. Where the log begins later than the counting did,
nothing is claimed.
"""

from contracts.audit.findings import Projection
from contracts.audit.log_audit import LogAudit
from contracts.audit.mending import AGAIN, Mender
from contracts.positions import START, entry_key
from contracts.store import Store
from contracts.store.log import Poison
from contracts.store.usage import Counted, Look
from contracts.times import day_text
from contracts.usage.fold import Owner, UsageFold, learn, write_flights
from contracts.usage.rows import Key, Row, empty, write_row
from contracts.wire import Entry

FLIGHTS = "attempts under way"


class UsageAudit:
    """One audit of one pool."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store, self._pool = store, pool
        self._look = Look(Counted(), {}, 0)
        self._fold, self._owners = UsageFold(), dict[str, Owner]()
        self._is_known = False

    async def begin(self, *, is_whole: bool) -> None:
        """Take what is counted now. Raises Unavailable."""
        self._look = await self._store.usage.look_at_all(self._pool)
        self._is_known = is_whole and self._look.counted.since == START

    def take(self, entry: Entry | Poison) -> None:
        """Fold one entry, if it was counted by then."""
        if isinstance(entry, Entry) and entry_key(entry.position) <= entry_key(self._look.counted.upto):
            self._fold.apply(entry, self._owners.get(entry.subject))
            learn(self._owners, entry)

    async def compare(self) -> Projection:
        """Return what came of it."""
        found = Projection("used")
        if not self._is_known:
            found.unknown = len(self._look.rows)
            return found
        expected = self._expected()
        for key in sorted(expected.keys() | self._look.rows.keys()):
            told, live = expected.get(key), self._look.rows.get(key)
            row = f"{day_text(key.day)} {key.tenant_id} {key.model}"
            found.compare(row, told and write_row(told), live and write_row(live))
        if self._look.counted.upto != START:
            found.compare(FLIGHTS, write_flights(self._fold.flights), self._look.counted.flights)
        return found

    async def mend(self, mender: Mender, audit: LogAudit) -> None:
        """Set right what differs. Raises Unavailable."""
        if not self._is_known or not (await self.compare()).differing:
            return
        expected, counted = self._expected(), self._look.counted
        changes: dict[Key, Row] = {}
        for key in expected.keys() | self._look.rows.keys():
            told, live = expected.get(key), self._look.rows.get(key)
            if told != live:
                changes[key] = [one - other for one, other in zip(told or empty(), live or empty(), strict=True)]
        flights = write_flights(self._fold.flights)
        reply = await self._store.usage.mend(self._pool, counted, flights, changes)
        if not reply.applied:
            mender.done.leave("used", AGAIN)
            return
        if reply.position == counted.upto:
            counted = counted._replace(flights=flights)
        elif counted.flights != flights:
            mender.done.leave(FLIGHTS, AGAIN)
        self._look = Look(counted._replace(mended=counted.mended + 1), expected, self._look.now_ms)
        for day in sorted({key.day for key in changes}):
            await mender.note("used", day_text(day), counted.upto)

    def _expected(self) -> dict[Key, Row]:
        first = self._look.counted.first
        return {key: row for key, row in self._fold.rows.items() if key.day >= first}

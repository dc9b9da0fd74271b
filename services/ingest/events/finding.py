"""Puts a question about events to the pools that may have an answer, and finds single events."""

import hashlib
from collections.abc import Mapping, Sequence

import orjson

from contracts.archive import Archive
from contracts.archive.hashes import Hashes
from contracts.archive.stories import PoolJobs
from contracts.envelope import JsonObject
from contracts.events import JobCreated
from contracts.ids import BadId, event_named
from contracts.positions import Position
from contracts.wire import Entry
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.events.query import EventQuery
from services.ingest.events.scan import MAX_SCANNED, Ground, PoolScan, Scan


class EventReader:
    """One for each process: it remembers whose jobs are whose."""

    def __init__(self, context: Context, archive: Archive) -> None:
        self._context, self._archive = context, archive
        self.hashes = Hashes(archive)
        self._jobs: dict[str, PoolJobs] = {}

    def digest_of_user(self, user_id: str) -> str:
        """Return what the log says in place of a user's id."""
        key = self._context.secret("users")
        return hashlib.blake2b(user_id.encode(), key=key, digest_size=16).hexdigest()

    def scan(self, query: EventQuery, cursor: str | None, *, newest_first: bool = False) -> Scan:
        """Begin where the cursor says, or the question. Raises Problem, StoreUnavailable."""
        places = None if cursor is None else self._unseal(query, cursor, newest_first)
        return self._scan(query, places, newest_first=newest_first)

    async def scan_to_end(self, query: EventQuery, cursor: str | None, after: Sequence[Position] = ()) -> Scan:
        """Begin where the cursor says, or behind `after` in their pools, and end where the logs end now."""
        places: Mapping[str, str | None] | None = None if cursor is None else self._unseal(query, cursor, False)
        if after:
            known = self._codes()
            if any(each.pool_code not in known for each in after):
                raise Problem("bad_parameter", "There is no pool with such positions")
            places = dict.fromkeys(known, query.start()) | {each.pool_code: each.entry for each in after}
        until = {name: await self._context.store.end_of_log(name) for name in self._context.pools}
        return self._scan(query, places, until=until)

    def _scan(
        self,
        query: EventQuery,
        places: Mapping[str, str | None] | None,
        *,
        newest_first: bool = False,
        until: Mapping[str, str] | None = None,
    ) -> Scan:
        pools = []
        for name in self._context.pools:
            ground = self.ground(name)
            if query.pool_code not in (None, ground.place.code):
                continue
            place = _begin(query, newest_first) if places is None else places.get(ground.place.code)
            is_explicit = place != query.start() or query.after is not None
            end = None if until is None else until[name]
            pools.append(PoolScan(ground, query, place, is_explicit=is_explicit, newest_first=newest_first, until=end))
        if not pools and query.pool_code is not None and query.job_id is None:
            raise Problem("bad_parameter", "There is no pool with such positions")
        return Scan(pools, newest_first=newest_first)

    def cursor(self, query: EventQuery, scan: Scan, *, newest_first: bool = False) -> str:
        """Return the cursor that goes on behind what a scan has given."""
        place = orjson.dumps(scan.places).decode()
        return seal(self._context.secret("cursors"), _question(query, newest_first), place)

    async def find(self, tenant_id: str, event_id: str) -> JsonObject | None:
        """Return one event of a tenant's job, with its hash once it is sealed."""
        try:
            job_id, sequence = event_named(event_id)
        except BadId:
            return None
        meta = self._context.pool_of(job_id)
        if meta is None:
            return None
        ground = self.ground(meta.name)
        entry = await self._entry(ground, tenant_id, job_id, sequence)
        if entry is None:
            return None
        owners = await ground.jobs.owners([entry], ())
        if job_id not in owners or owners[job_id].tenant_id != tenant_id:
            return None
        (view,) = await ground.jobs.views([entry], owners, await ground.origins([entry.position]))
        hashes = await self.hashes.of(meta.name, [entry.position])
        return view | {"hash": hashes.get(entry.position)}

    async def created(self, job_id: str) -> JobCreated | None:
        """Return the first event of a job, whoever's it is, also when it is forgotten; None where nothing is known."""
        meta = self._context.pool_of(job_id)
        entry = None if meta is None else await self._entry(self.ground(meta.name), None, job_id, 1)
        event = None if entry is None else entry.event()
        return event if isinstance(event, JobCreated) else None

    def ground(self, pool: str) -> Ground:
        """Return a pool to go through. Raises StoreUnavailable before the store was opened."""
        place, store = self._context.place(self._context.pool(pool)), self._context.store
        if pool not in self._jobs:
            self._jobs[pool] = PoolJobs(store, self._archive, pool)
        return Ground(place, self._jobs[pool], store, self._archive)  # its epoch may be another one than the last time

    async def _entry(self, ground: Ground, tenant_id: str | None, job_id: str, sequence: int) -> Entry | None:
        call = self._context.store.jobs.history(ground.place.pool, job_id, after=sequence - 1)
        history = await self._context.within(call)
        if history is not None:
            first = history.entries[0] if history.entries else None
            return first if first is not None and first.sequence == sequence else None
        # Forgotten: its events lie where it was created, or soon after.
        scan = self.scan(EventQuery(tenant_id, job_id=job_id), None)
        return await scan.first(lambda entry: entry.sequence == sequence, MAX_SCANNED)

    def _unseal(self, query: EventQuery, cursor: str, newest_first: bool) -> dict[str, str | None]:
        try:
            text = unseal(self._context.secret("cursors"), _question(query, newest_first), cursor)
        except BadCursor:
            raise Problem("bad_cursor") from None
        places = orjson.loads(text)
        assert isinstance(places, dict)
        # A pool that is new since then is read from its beginning.
        return {code: _begin(query, newest_first) for code in self._codes()} | places

    def _codes(self) -> list[str]:
        return [meta.code for meta in self._context.pools.values()]


def _begin(query: EventQuery, newest_first: bool) -> str | None:
    if not newest_first:
        return query.start()
    end = query.end()
    return None if end is None else f"{end[0]}-{end[1]}"


def _question(query: EventQuery, newest_first: bool) -> str:
    return f"{query.tenant_id}\nevents\n{newest_first}\n{query.canonical}"

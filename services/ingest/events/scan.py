"""Goes through the logs of pools, in either direction, and gives what a question asks for, in the order of time.

Promises: within a pool nothing that fits is left out or given twice, whatever is sealed or trimmed meanwhile; `places`
is always where the next call must go on; one call looks at MAX_SCANNED entries and STEP more for each pool at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from contracts.archive import Archive, Gone
from contracts.archive.backward import older
from contracts.archive.stories import Owners, PoolJobs, origins_of
from contracts.envelope import JsonObject, Origin
from contracts.positions import START, Position, before, entry_key, next_key
from contracts.store import Store
from contracts.store.log import Poison
from contracts.wire import Entry
from services.ingest.edge.problems import Problem
from services.ingest.events.query import EventQuery
from services.ingest.views.jobs import Place

MAX_SCANNED = 10_000
STEP = 1_000


@dataclass(frozen=True, slots=True)
class Ground:
    """A pool to go through."""

    place: Place
    jobs: PoolJobs
    store: Store
    archive: Archive

    async def origins(self, positions: Iterable[str]) -> dict[str, Origin]:
        """Return where positions lie."""
        live = Origin(self.place.code, self.place.epoch, self.place.public_url)
        return await origins_of(self.archive, self.place.pool, live, positions)


class PoolScan:
    """One pool: `place` is behind what was given, None before anything was, backwards. Raises Problem, Unavailable."""

    def __init__(
        self,
        ground: Ground,
        query: EventQuery,
        place: str | None,
        *,
        is_explicit: bool,
        newest_first: bool = False,
        until: str | None = None,
    ) -> None:
        self.ground, self.place = ground, place
        self._query, self._is_explicit, self._newest_first = query, is_explicit, newest_first
        ends = [key for key in (query.end(), None if until is None else next_key(until)) if key is not None]
        self._end, self._start = min(ends, default=None), entry_key(query.start())
        self._seen = place  # behind what was looked at
        self._ahead: deque[Entry | Poison] = deque()
        self._fitting: deque[Entry] = deque()
        self.owners: Owners = {}
        self.is_over = False
        self.scanned = 0

    @property
    def head(self) -> Entry | None:
        """The next that fits, of those looked at."""
        return self._fitting[0] if self._fitting else None

    def take(self) -> Entry:
        """Take the next that fits."""
        entry = self._fitting.popleft()
        self.place = entry.position if self._fitting else self._seen
        return entry

    async def look(self) -> None:
        """Look at more entries."""
        if not self._ahead:
            self._ahead.extend(await self._next())
            if self.place is None:  # from the end backwards: what comes from now on is newer than what was begun with
                self.place = _behind(self._ahead[0].position) if self._ahead else START
            if not self._ahead:
                self.is_over = True
                return
        looked_at = [self._ahead.popleft() for _ in range(min(STEP, len(self._ahead)))]
        inside = [entry for entry in looked_at if self._is_inside(entry.position)]
        self.is_over = len(inside) < len(looked_at)
        self.scanned += len(looked_at)
        if inside:  # not behind the end: who goes on there later must not miss what came meanwhile
            self._seen = inside[-1].position
        await self._sift([entry for entry in inside if isinstance(entry, Entry)])
        if not self._fitting and self._seen is not None:
            self.place = self._seen

    def _is_inside(self, position: str) -> bool:
        key = entry_key(position)
        return key > self._start if self._newest_first else self._end is None or key < self._end

    async def _sift(self, entries: Sequence[Entry]) -> None:
        query = self._query
        candidates = [entry for entry in entries if query.may_fit(entry)]
        if not query.is_of_jobs:
            self._fitting.extend(candidates)
            return
        asked = {"with_users": query.user_digest is not None, "with_models": query.model is not None}
        found = await self.ground.jobs.owners(candidates, entries, **asked)
        mine = {job_id: owner for job_id, owner in found.items() if query.fits(owner)}
        self.owners |= mine
        self._fitting.extend(entry for entry in candidates if entry.subject in mine)

    async def _next(self) -> Sequence[Entry | Poison]:
        ground = self.ground
        if self._newest_first:
            return await older(ground.store, ground.archive, ground.place.pool, self._seen, STEP)
        assert self._seen is not None
        try:
            return await ground.archive.next(ground.place.pool, self._seen, STEP)
        except Gone as gone:
            if self._is_explicit:
                oldest = str(Position(ground.place.code, ground.place.epoch, gone.first))
                told = f"What follows this place is no longer kept; go on with the event at {oldest}"
                raise Problem("cursor_expired", told, extensions={"oldest": oldest}) from None
            # Asked for by time, or from the beginning: what there is begins here.
            self._seen = before(gone.first)
            return await ground.archive.next(ground.place.pool, self._seen, STEP)


def _behind(position: str) -> str:
    ms, seq = next_key(position)
    return f"{ms}-{seq}"


class Scan:
    """Several pools as one; `step` gives the next events."""

    def __init__(self, pools: Sequence[PoolScan], *, newest_first: bool) -> None:
        self._pools, self._newest_first = pools, newest_first

    @property
    def is_over(self) -> bool:
        """Whether all was given."""
        return all(pool.is_over and pool.head is None for pool in self._pools)

    @property
    def scanned(self) -> int:
        """How many entries were looked at."""
        return sum(pool.scanned for pool in self._pools)

    @property
    def places(self) -> dict[str, str | None]:
        """Where to go on, by pool code."""
        return {pool.ground.place.code: pool.place for pool in self._pools}

    @property
    def codes(self) -> dict[str, str]:
        """The codes of its pools, by name."""
        return {pool.ground.place.pool: pool.ground.place.code for pool in self._pools}

    async def step(self, most: int, most_scanned: int = MAX_SCANNED) -> list[JsonObject]:
        """Return up to `most` of the next events; fewer, or none, when looking further would take too long."""
        picked: list[tuple[PoolScan, Entry]] = []
        begun = self.scanned
        while len(picked) < most and not self.is_over:
            waiting = [pool for pool in self._pools if pool.head is None and not pool.is_over]
            if waiting and self.scanned - begun >= most_scanned:
                break
            if waiting:
                await asyncio.gather(*(pool.look() for pool in waiting))
                continue
            pool = self._first()
            picked.append((pool, pool.take()))
        return await _views(picked)

    async def first(self, wanted: Callable[[Entry], bool], most_scanned: int) -> Entry | None:
        """Return the first entry that is `wanted`, of the next `most_scanned`."""
        for pool in self._pools:
            while not pool.is_over and pool.scanned < most_scanned:
                await pool.look()
                while pool.head is not None:
                    if wanted(entry := pool.take()):
                        return entry
        return None

    def _first(self) -> PoolScan:
        heads = [(entry_key(pool.head.position), number) for number, pool in enumerate(self._pools) if pool.head]
        return self._pools[(max if self._newest_first else min)(heads)[1]]


async def _views(picked: Sequence[tuple[PoolScan, Entry]]) -> list[JsonObject]:
    """Return event records in the order given; each pool is asked once."""
    views: dict[tuple[int, str], JsonObject] = {}
    for pool in {id(pool): pool for pool, _ in picked}.values():
        entries = sorted((entry for of, entry in picked if of is pool), key=lambda entry: entry_key(entry.position))
        origins = await pool.ground.origins(entry.position for entry in entries)
        for view, entry in zip(await pool.ground.jobs.views(entries, pool.owners, origins), entries, strict=True):
            views[id(pool), entry.position] = view
    return [views[id(pool), entry.position] for pool, entry in picked]

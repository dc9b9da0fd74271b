"""What running jobs print, for those who follow: one reader of a pool's live stream, one ring of pieces for all.

Promises: a follower has what the stream still holds, then every piece that arrives; one that does not read loses its
oldest, which shows as a hole. A tenant has its share of the places, so none can take all of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from contracts.positions import START
from contracts.store import Store
from contracts.store.live import ERASED, MOST_PIECES, Piece, as_piece
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.tails import Follower, Read, Tail

MAX_FOLLOWING = 500
BLOCK_MS = 500
RETRY_AFTER_S = 10.0  # nobody knows when a follower leaves

Feed = Follower[Piece]


class LogTails:
    """Who follows which job. `tenant_share`: of how many followers a tenant may have here."""

    def __init__(self, store: Store, tenant_share: int) -> None:
        self._store, self._share = store, tenant_share
        self._tails: dict[str, Tail[Piece]] = {}
        self._following: Counter[str] = Counter()
        self._stop = asyncio.Event()

    @contextmanager
    def follow(self, tenant_id: str, pool: str, job_id: str) -> Iterator[Feed]:
        """See what the job prints. Raises Problem `quota_exceeded`, `overloaded`."""
        self._check(tenant_id)
        self._following[tenant_id] += 1
        try:
            with self._tail(pool).follow(job_id) as feed:
                yield feed
        finally:
            self._following[tenant_id] -= 1
            self._following += Counter()  # drops who follows nothing

    async def aclose(self) -> None:
        """End all feeds and stop the readers."""
        self._stop.set()
        await asyncio.gather(*(tail.aclose() for tail in self._tails.values()))

    def _check(self, tenant_id: str) -> None:
        if self._following[tenant_id] >= self._share:
            detail = f"The tenant follows {self._share} logs here already; end one, or read the list with its cursor"
            extensions = {POLICIES: ["followers"]}
            raise Problem("quota_exceeded", detail, retry_after_s=RETRY_AFTER_S, extensions=extensions)
        if self._following.total() >= MAX_FOLLOWING:
            raise Problem("overloaded", "Too many logs are being followed")

    def _tail(self, pool: str) -> Tail[Piece]:
        if pool not in self._tails:
            self._tails[pool] = Tail(self._reading(pool), MOST_PIECES, self._stop, lambda piece: piece.offset == ERASED)
        return self._tails[pool]

    def _reading(self, pool: str) -> Callable[[], Read[Piece]]:
        reader = self._store.live.tail(pool, START)

        async def read() -> list[tuple[str, Piece]]:
            pieces = map(as_piece, await reader.messages(count=100, block_ms=BLOCK_MS))
            return [(piece.job_id, piece) for piece in pieces]

        def open_() -> Read[Piece]:
            reader.position = START
            return read

        return open_

"""Plans the delivery of an event once more: it was planned, and the store has lost it before it was ever tried.

Promises: what is there is left alone, so asking twice makes one delivery; of an event nothing is planned but what is
asked for.
"""

import secrets

import structlog

from contracts.archive import Archive
from contracts.positions import before
from contracts.store import Store
from contracts.store.log import Poison
from contracts.telemetry import Logger
from contracts.webhook_keys import KEY_ROOT
from services.notifier.payload import Links
from services.notifier.planning.batch_planner import BatchPlanner
from services.notifier.planning.notices import Source

log: Logger = structlog.get_logger(service="notifier")


class Replanner:
    """Plans for one pool."""

    def __init__(self, store: Store, archive: Archive, pool: str, public_url: str) -> None:
        self._store, self._archive, self._pool, self._public_url = store, archive, pool, public_url
        self._planner: BatchPlanner | None = None

    async def __call__(self, position: str, delivery_id: str) -> bool:
        """Plan this delivery of the event at a position; False where it does not follow from it. Raises Unavailable."""
        planner = self._planner = self._planner or await self._make()
        async for records in self._archive.read(self._pool, before(position), position):
            entry = records[0].entry()
            if isinstance(entry, Poison):
                return False
            plan, _ = await planner.plan([entry])
            wanted = [each for each in plan.deliveries if each.id == delivery_id]
            await self._store.deliveries.plan(self._pool, "", wanted, [])
            return bool(wanted)
        return False

    async def _make(self) -> BatchPlanner:
        meta = await self._store.open_pool(self._pool)
        secret = await self._store.directory.keep_secret(KEY_ROOT, secrets.token_hex(32))
        return BatchPlanner(
            self._store, self._pool, Source(meta.code, meta.epoch, Links(self._public_url, secret.encode())), log
        )

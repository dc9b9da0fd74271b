"""The archivist of all pools, also of those that come into being meanwhile.

Promises: starts before the store does and survives its outages; ends at once when another place than the log's own
archive was given, since two archives of one log would each have holes.
"""

import asyncio
import contextlib
import random
import socket
from asyncio import FIRST_COMPLETED

from contracts.archive import Archive
from contracts.archive.place import Place, place_of
from contracts.artifacts import Objects, Shelf
from contracts.errors import StoreUnavailable, Unavailable
from contracts.ids import mint_token
from contracts.store import Store, keys
from contracts.store.log import pause
from contracts.telemetry import Logger
from services.archivist.config import ArchivistConfig
from services.archivist.pool import PoolArchivist

NEW_POOLS_S = 1.0  # between two looks for pools that are new


class Archivist:
    """Run until told to stop."""

    def __init__(self, store: Store, objects: Objects, shelf: Shelf, config: ArchivistConfig, log: Logger) -> None:
        """`objects`: where the archive lies. `shelf`: the files of jobs, for those that are erased."""
        self._store, self._objects, self._shelf, self._config, self._log = store, objects, shelf, config, log
        self._archive = Archive(store, objects)
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Serve all pools until `stop`. Raises ConfigError."""
        place = await self._open(stop)
        if place is None:
            return
        stopping = asyncio.create_task(stop.wait())
        following = asyncio.create_task(self._store.directory.follow(stop))
        try:
            while not stop.is_set():
                await self._begin(place, stop)
                done, _ = await asyncio.wait(
                    [stopping, *self._running.values()], timeout=NEW_POOLS_S, return_when=FIRST_COMPLETED
                )
                for task in done - {stopping}:
                    task.result()  # raises what ended it
            await asyncio.gather(*self._running.values())
        finally:
            stop.set()  # to be cancelled is not enough for who is just connecting
            for task in (stopping, following, *self._running.values()):
                task.cancel()
            await asyncio.gather(stopping, following, *self._running.values(), return_exceptions=True)

    async def _open(self, stop: asyncio.Event) -> Place | None:
        """Open the directory and the archive, however long they are away; None when told to stop meanwhile."""
        failures = 0
        while not stop.is_set():
            try:
                await self._store.directory.open()
                candidate = mint_token(random.SystemRandom().getrandbits(80))
                return await self._archive.run(place_of, self._objects, candidate, socket.gethostname())
            except Unavailable as error:
                failures += 1
                self._log.warning("not_opened", reason=str(error), failures_count=failures)
                await pause(failures, stop, random.random())
        return None

    async def _begin(self, place: Place, stop: asyncio.Event) -> None:
        for pool in sorted({keys.SYSTEM, *self._store.directory.configuration.pools} - self._running.keys()):
            with contextlib.suppress(StoreUnavailable):
                if pool != keys.SYSTEM:
                    await self._store.open_pool(pool)
                one = PoolArchivist(self._store, self._archive, self._shelf, place.id, pool, self._config, self._log)
                self._running[pool] = asyncio.create_task(one.follow(stop))

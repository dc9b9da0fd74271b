"""What the handlers of one process share: settings, store, models, secrets, and the bounds on waiting for them.

Promises: a handler that needs the store hears within `store_timeout_s` that it is away; the process serves from its
first moment, also while the store is still away, and opens it in the background.
"""

import asyncio
import hmac
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from contracts import events as ev
from contracts.artifacts import Shelf
from contracts.errors import StoreUnavailable, Unconfirmed
from contracts.ids import BadId, pool_code_of
from contracts.model_spec import ModelRegistry
from contracts.retention import Kept, from_settings, kept
from contracts.settings import Settings
from contracts.store import Store
from contracts.store.log import pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.tenant import Configuration
from services.ingest.admission.capacity import Capacity
from services.ingest.asking import Asker
from services.ingest.edge.body import BodyLimits, BodyRoom
from services.ingest.files import Files
from services.ingest.metrics import IngestMetrics
from services.ingest.patience import Patience
from services.ingest.readiness import Readiness
from services.ingest.views.jobs import Place

log: Logger = structlog.get_logger(service="ingest")

T = TypeVar("T")

ROOT = "urls"  # signs links, which the notifier does as well; secrets for other purposes are derived from it


@dataclass(slots=True)
class Context:
    """Built once in `__main__`; `open` fills in what only the store knows."""

    settings: Settings
    store: Store
    models: ModelRegistry
    metrics: IngestMetrics
    readiness: Readiness
    now_ms: Callable[[], int]
    body_limits: BodyLimits
    shelf: Shelf
    room: BodyRoom = field(default_factory=BodyRoom)
    pools: dict[str, PoolMeta] = field(default_factory=dict)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    asker: Asker = field(init=False)
    capacity: Capacity = field(init=False)
    files: Files = field(init=False)
    _patience: Patience = field(init=False)
    _places: dict[str, Place] = field(default_factory=dict)
    _secrets: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = Files(self.shelf, self._pool_name_of)
        self._patience = Patience(self.settings.ingest.store_timeout_s)
        self.asker = Asker(self.store, secrets.token_hex(8), time.monotonic)
        self.capacity = Capacity(lambda pool: self.within(self.store.workers(pool)), time.monotonic)

    async def open(self, stop: asyncio.Event) -> None:
        """Open the store, trying until it answers or `stop` is set."""
        failures = 0
        while not stop.is_set():
            try:
                await self._open_once()
                self.opened.set()
                log.info("store_opened", pools=list(self.pools))
                return
            except StoreUnavailable as error:
                failures += 1
                log.warning("store_not_opened", failures=failures, reason=str(error))
                await pause(failures, stop, random.random())

    async def _open_once(self) -> None:
        await self.store.directory.open()
        secret = await self.store.directory.keep_secret(ROOT, secrets.token_hex(32))
        # Also the pools of models that are gone from the file: their jobs can still be read.
        await self._define_resources()
        names = dict.fromkeys(("default", *self.models.pools, *self.store.directory.configuration.pools))
        pools = {name: await self.store.open_pool(name) for name in names}
        self._secrets, self.pools = {ROOT: secret.encode()}, pools

    async def _define_resources(self) -> None:
        """Write down the external rate limits of the pipelines file, where they are not what is known."""
        for resource in self.models.resources.values():
            defined = ev.ResourceDefined(
                resource=resource.name, rate=resource.rate, window_ms=round(resource.window_s * 1000)
            )
            await self.store.directory.change(partial(_if_new, defined), resource.name)

    def secret(self, purpose: str) -> bytes:
        """Return the shared secret for one purpose. Raises StoreUnavailable before the store was opened."""
        known = self._secrets.get(purpose)
        if known is not None:
            return known
        root = self._secrets.get(ROOT)
        if root is None:
            raise StoreUnavailable("not opened yet")
        self._secrets[purpose] = hmac.digest(root, purpose.encode(), "sha256")
        return self._secrets[purpose]

    def pool(self, name: str) -> PoolMeta:
        """Return an open pool. Raises StoreUnavailable before the store was opened."""
        try:
            return self.pools[name]
        except KeyError:
            raise StoreUnavailable("not opened yet") from None

    def pool_of(self, any_id: str) -> PoolMeta | None:
        """Return the pool that an id belongs to; None for a malformed id or an unknown pool.

        Raises StoreUnavailable before the store was opened: then nobody knows, which is not the same as unknown.
        """
        if not self.pools:
            raise StoreUnavailable("not opened yet")
        try:
            code = pool_code_of(any_id)
        except BadId:
            return None
        return next((meta for meta in self.pools.values() if meta.code == code), None)

    def _pool_name_of(self, any_id: str) -> str | None:
        meta = self.pool_of(any_id)
        return None if meta is None else meta.name

    def note_epochs(self, epochs: Mapping[str, int]) -> None:
        """Take a new epoch of a pool's log: from now on, positions of the one before are of a log that is gone."""
        for name, epoch in epochs.items():
            if name in self.pools and epoch > self.pools[name].epoch:
                log.warning("epoch_changed", pool=name, epoch=epoch)
                self.pools[name] = replace(self.pools[name], epoch=epoch)
                self._places.pop(name, None)

    def place(self, meta: PoolMeta) -> Place:
        """Return what a view needs to know of a pool."""
        place = self._places.get(meta.name)
        if place is None:
            public_url = self.settings.public_url.rstrip("/")
            meta = self.pools.get(meta.name, meta)  # who holds an older one must not bring its epoch back
            place = Place(meta.name, meta.code, meta.epoch, public_url, partial(self.kept, meta.name))
            self._places[meta.name] = place
        return place

    def kept(self, pool: str, tenant_id: str) -> Kept:
        """Return how long things of a tenant are kept in a pool, as it holds now."""
        return kept(
            from_settings(self.settings.retention), self.store.directory.configuration.retention, pool, tenant_id
        )

    async def within(self, call: Awaitable[T]) -> T:
        """Await a call of the store. Raises Unconfirmed when it takes longer than a caller should wait."""
        try:
            return await self._patience.within(call)
        except TimeoutError:
            raise Unconfirmed("no answer in time") from None


def _if_new(defined: ev.ResourceDefined, state: Configuration) -> ev.Event | None:
    known = state.resources.get(defined.resource)
    is_same = known is not None and (known.rate, known.window_ms) == (defined.rate, defined.window_ms)
    return None if is_same else defined

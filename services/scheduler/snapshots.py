"""Snapshots of the fold in the store: load the newest, keep a new one. Never called on a leader's loop.

A standby keeps one from its own state. Where there is none, the leader starts a process, `python -m services.scheduler
--snapshot POOL`, that loads the newest snapshot, folds to the end of the log, keeps the result and ends. A fork would
save folding again, but forking a process with threads and an event loop is not safe everywhere.
"""

import gc
import random
from collections.abc import Awaitable, Callable

import structlog

from contracts.errors import Corrupt
from contracts.ids import mint_token
from contracts.positions import entry_key
from contracts.store import Store
from contracts.store.log import Poison
from contracts.telemetry import Logger
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.state import PoolState

log: Logger = structlog.get_logger(service="scheduler")
READ_COUNT = 1_000
LOOK_EVERY_MS = 2_000
KeepApart = Callable[[str], Awaitable[object]]  # keeps a snapshot of a pool outside this process's loop


class Pace:
    """When the next snapshot is due: so many entries, or so long with any at all, after the newest one there is."""

    def __init__(self, entries: int, ms: int) -> None:
        self._entries, self._ms = entries, ms
        self._position = ""
        self._mark, self._at_ms = 0, 0

    def saw(self, position: str, entries_read: int, mono_ms: int) -> None:
        """Note where the newest snapshot stands."""
        if position != self._position:
            self._position, self._mark, self._at_ms = position, entries_read, mono_ms

    def is_due(self, entries_read: int, mono_ms: int, factor: int = 1) -> bool:
        """Whether it is time; a leader waits `factor` times as long, so that a standby comes first."""
        new = entries_read - self._mark
        return new >= factor * self._entries or (new > 0 and mono_ms - self._at_ms >= factor * self._ms)

    def begun(self, entries_read: int, mono_ms: int) -> None:
        """Note that one is being made, so that one that fails is not tried at once again."""
        self._mark, self._at_ms = entries_read, mono_ms


async def load_state(store: Store, pool: str) -> PoolState:
    """Return the newest snapshot's state, an empty one when there is none that can be read. Raises StoreUnavailable.

    A snapshot saves time and holds nothing of its own: one of another version, or a broken one, must stop nobody. The
    log still has all about every job that is kept; a worker that registered before its first entry must do so again.
    """
    try:
        kept = await store.snapshots.load(pool)
        return PoolState() if kept is None else _load(kept[1])
    except Corrupt as error:
        log.warning("snapshot_not_read", pool=pool, reason=str(error), hint="the whole log is folded; restart workers")
        return PoolState()


def _load(data: bytes) -> PoolState:
    """Load without the collector: it would look through all that is made again and again, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return load(data)
    finally:
        if was_enabled:
            gc.enable()


async def keep_state(store: Store, pool: str, state: PoolState) -> bool:
    """Store the state; False when somebody was faster."""
    snapshot_id = mint_token(random.SystemRandom().getrandbits(80))
    return await store.snapshots.keep(pool, snapshot_id, state.position, dump(state))


async def fold_and_keep(store: Store, pool: str) -> bool:
    """Fold from the newest snapshot to the end of the log as it is now, and keep that."""
    state, end = await load_state(store, pool), await store.end_of_log(pool)
    reader = store.tail(pool, state.position)
    while entry_key(state.position) < entry_key(end) and (entries := await reader.read(count=READ_COUNT)):
        for entry in entries:
            if isinstance(entry, Poison):
                state.skip(entry.position)
            else:
                state.apply(entry)
    return await keep_state(store, pool, state)

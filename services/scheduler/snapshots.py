"""Snapshots of the fold in the store: load the newest, keep a new one. Never called on a leader's loop.

A standby keeps one from its own state. Where there is none, the leader starts `python -m services.scheduler --snapshot POOL`:
a process that loads the newest snapshot, folds to the end of the log, keeps the result and ends. A child by fork would
save the fold again, but a fork of a process with threads and an event loop is not safe everywhere.
"""

import random

from contracts.ids import mint_token
from contracts.positions import entry_key
from contracts.store import Store
from contracts.store.log import Poison
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.state import PoolState

READ_COUNT = 1_000


async def load_state(store: Store, pool: str) -> PoolState:
    """Return the newest snapshot's state, an empty one when there is none. Raises Corrupt, StoreUnavailable."""
    kept = await store.snapshots.load(pool)
    return PoolState() if kept is None else load(kept[1])


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

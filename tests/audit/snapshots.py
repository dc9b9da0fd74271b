"""A foreign hand in the scheduler's snapshot."""

import hashlib
from collections.abc import Callable

from contracts.store import Store, keys
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.fold.state import PoolState
from services.scheduler.snapshots import fold_and_keep
from tests.archivist.rig import POOL


async def replace_snapshot(store: Store, change: Callable[[PoolState], object]) -> None:
    """Keep a snapshot of now, changed."""
    await fold_and_keep(store, POOL)
    kept = await store.snapshots.load(POOL)
    assert kept is not None
    state = load(kept[1])
    change(state)
    await put_snapshot(store, dump(state))


async def put_snapshot(store: Store, data: bytes) -> None:
    """Write these bytes in its place."""
    pointer = await store.snapshots.pointer(POOL)
    key = keys.snapshot_parts(POOL, pointer.id)
    await store.client.delete(key)
    await store.client.rpush(key, data)
    await store.client.hset(keys.snapshot(POOL), "digest", hashlib.sha256(data).hexdigest())

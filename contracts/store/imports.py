"""Exported logs as the logs of pools that have none yet.

Promises: all of it or nothing, in all pools together; a pool that ever had an entry is refused, also when it gets one
while the import is under way; nobody is told of what is imported, since every group of a log begins behind it. What an
import that was cut off has left goes by itself.
"""

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError, WatchError

from contracts.errors import Rejected, StoreUnavailable
from contracts.positions import START, Position
from contracts.store import keys
from contracts.store.clients import LOST
from contracts.store.store import Store
from contracts.wire import Entry

AT_ONCE = 500
LIFE_S = 3_600  # of what lies beside the log while it is written

Logs = Mapping[str, Iterable[tuple[Position, Entry]]]  # by pool


class _Beside(NamedTuple):
    """A log that is written and not in its place yet."""

    key: str
    entries: int
    epoch: int
    end: str


async def import_logs(store: Store, logs: Logs, token: str) -> dict[str, int]:
    """Write entries at their own positions; returns how many, by pool. Raises Rejected `already_exists`, Unavailable.

    Args:
        token: of this import alone.
    """
    await _refuse_if_any(store, logs)
    written: dict[str, _Beside] = {}
    try:
        for pool, entries in logs.items():
            written[pool] = await _write(store, f"{keys.log(pool)}:import:{token}", entries)
        async with store.client.pipeline(transaction=True) as pipe:
            await pipe.watch(*map(keys.log, logs))
            await _refuse_if_any(store, logs)
            pipe.multi()  # type: ignore[no-untyped-call]
            for pool, beside in written.items():
                if beside.entries:
                    _put(pipe, pool, beside)
            await pipe.execute()
    except WatchError:
        raise _refused(", ".join(logs)) from None
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error
    return {pool: beside.entries for pool, beside in written.items()}


async def _refuse_if_any(store: Store, pools: Iterable[str]) -> None:
    for pool in pools:
        if await store.end_of_log(pool) != START:
            raise _refused(pool)


def _refused(pool: str) -> Rejected:
    return Rejected("already_exists", f"pool {pool} has a log already: import into an instance that is empty")


async def _write(store: Store, key: str, entries: Iterable[tuple[Position, Entry]]) -> _Beside:
    count, epoch, end, waiting = 0, 1, START, iter(entries)
    while some := await asyncio.to_thread(
        lambda: list(islice(waiting, AT_ONCE))
    ):  # they are read as they are asked for
        pipe = store.client.pipeline(transaction=False)
        for position, entry in some:
            pipe.xadd(key, _fields(entry), id=entry.position)
            epoch, end = position.epoch, entry.position
        pipe.expire(key, LIFE_S)
        await pipe.execute()
        count += len(some)
    return _Beside(key, count, epoch, end)


def _put(pipe: Pipeline, pool: str, beside: _Beside) -> None:
    pipe.persist(beside.key)
    pipe.rename(beside.key, keys.log(pool))
    # The mirror's group is made when a mirror runs: until then its cursor stands for it.
    pipe.hset(keys.meta(pool), mapping={"epoch": beside.epoch, "cursor:mirror": beside.end})
    for group in keys.LOG_GROUPS:
        pipe.xgroup_create(keys.log(pool), group, id=beside.end)


def _fields(entry: Entry) -> dict[Any, Any]:
    """Return the fields of an entry in the order in which the store writes them."""
    event_type = entry.type if entry.version == 1 else f"{entry.type}/{entry.version}"
    fields: dict[Any, Any] = {"t": event_type, "j": entry.subject, "n": entry.sequence}
    if entry.fence:
        fields["f"] = entry.fence
    if entry.previous:
        fields["p"] = entry.previous
    return fields | {"d": entry.data}

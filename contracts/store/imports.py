"""An exported log as the log of a pool that has none yet.

Promises: all of it or nothing; a pool that ever had an entry is refused; nobody is told of what is imported, since
every group of the log begins behind it.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from redis.exceptions import ResponseError

from contracts.errors import Rejected, StoreUnavailable
from contracts.positions import START, Position
from contracts.store import keys
from contracts.store.clients import LOST
from contracts.store.store import Store
from contracts.wire import Entry

AT_ONCE = 500


async def import_log(store: Store, pool: str, entries: Iterable[tuple[Position, Entry]]) -> int:
    """Write entries at their own positions; returns how many. Raises Rejected `already_exists`, StoreUnavailable."""
    if await store.end_of_log(pool) != START:
        raise Rejected("already_exists", f"pool {pool} has a log already: import into an instance that is empty")
    beside, count, epoch, end = keys.log(pool) + ":import", 0, 1, START
    try:
        await store.client.delete(beside)
        waiting = iter(entries)
        while some := list(islice(waiting, AT_ONCE)):
            pipe = store.client.pipeline(transaction=False)
            for position, entry in some:
                pipe.xadd(beside, _fields(entry), id=entry.position)
                epoch, end = position.epoch, entry.position
            await pipe.execute()
            count += len(some)
        if count:
            pipe = store.client.pipeline(transaction=True)
            pipe.rename(beside, keys.log(pool))
            pipe.hset(keys.meta(pool), "epoch", epoch)
            for group in keys.LOG_GROUPS:
                pipe.xgroup_create(keys.log(pool), group, id=end)
            await pipe.execute()
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error
    return count


def _fields(entry: Entry) -> dict[Any, Any]:
    """Return the fields of an entry in the order in which the store writes them."""
    event_type = entry.type if entry.version == 1 else f"{entry.type}/{entry.version}"
    fields: dict[Any, Any] = {"t": event_type, "j": entry.subject, "n": entry.sequence}
    if entry.fence:
        fields["f"] = entry.fence
    if entry.previous:
        fields["p"] = entry.previous
    return fields | {"d": entry.data}

"""Where the readers of a log stand: its end, and how far a group still needs it. What the trimmer must know."""

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.errors import StoreUnavailable
from contracts.positions import START
from contracts.store.clients import LOST, as_text, ask
from contracts.store.log import Message
from contracts.wire import Entry


async def last_position(client: Redis, key: str) -> str:
    """Return the position of the newest entry ever appended; START for an empty log. Raises StoreUnavailable."""
    try:
        return as_text((await client.xinfo_stream(key))["last-generated-id"])
    except ResponseError:  # there is no such stream
        return START
    except LOST as error:
        raise StoreUnavailable(str(error)) from error


async def read_entry(client: Redis, key: str, position: str) -> Entry | None:
    """Return the entry at a position; None when it is not there, or cannot be read. Raises StoreUnavailable."""
    raw = await ask(client.xrange(key, position, position))
    found = Message(position, raw[0][1]).entry() if raw else None
    return found if isinstance(found, Entry) else None


async def needed_from(client: Redis, key: str, group: str) -> str:
    """Return the first position that a group may still need: all entries below it are done with.

    START when the group does not exist. Raises StoreUnavailable.
    """
    try:
        for info in await client.xinfo_groups(key):
            if as_text(info["name"]) == group:
                return await _first_pending(client, key, group) or _after(as_text(info["last-delivered-id"]))
    except ResponseError:  # there is no such stream
        return START
    except LOST as error:
        raise StoreUnavailable(str(error)) from error
    return START


async def _first_pending(client: Redis, key: str, group: str) -> str | None:
    lowest = (await client.xpending(key, group))["min"]
    return None if lowest is None else as_text(lowest)


def _after(position: str) -> str:
    ms, _, seq = position.partition("-")
    return f"{ms}-{int(seq) + 1}"

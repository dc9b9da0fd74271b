"""Reading a log exactly as it is, and noticing what was trimmed from it meanwhile.

Promises: `after` says in the same breath from where the log may have been trimmed, so that a reader that is behind
knows about its hole instead of jumping it.
"""

from typing import NamedTuple

from redis.asyncio import Redis

from contracts.errors import Corrupt, StoreUnavailable
from contracts.positions import START, before, entry_key, next_key
from contracts.store import keys
from contracts.store.channel import Channel
from contracts.store.clients import COMMAND_TIMEOUT_S, LOST, as_text, ask
from contracts.store.log import Poison
from contracts.wire import Entry, decode


class Record(NamedTuple):
    """One entry of a log as it is: its position, and names and values of its fields in their order."""

    position: str
    fields: tuple[bytes, ...]

    def entry(self) -> Entry | Poison:
        """Read it; what cannot be read is Poison."""
        texts = iter(self.fields)
        try:
            return decode(self.position, dict(zip(texts, texts, strict=False)))
        except Corrupt as error:
            return Poison(self.position, error.reason)


class Found(NamedTuple):
    """Entries in order, and the mark below which entries may be gone from the log."""

    records: list[Record]
    trimmed: str = START


class RecordReader:
    """Reads the logs of pools over one connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def opened(self) -> int:
        """How many connections this took so far."""
        return self._channel.opened

    async def after(self, pool: str, position: str, count: int, block_ms: int | None = None) -> Found:
        """Return what follows `position`, waiting up to `block_ms` for the first. Raises StoreUnavailable."""
        blocking = () if block_ms is None else ("BLOCK", block_ms)
        # In this order: whatever was trimmed before the entries were read is below the mark that is read after them.
        commands = (
            ("XREAD", "COUNT", count, *blocking, "STREAMS", keys.log(pool), position),
            ("HGET", keys.meta(pool), "trimmed"),
        )
        try:
            found, trimmed = await self._channel.exchange(commands, COMMAND_TIMEOUT_S + (block_ms or 0) / 1000)
        except LOST as error:
            raise StoreUnavailable(str(error)) from error
        for reply in (found, trimmed):
            if isinstance(reply, Exception):
                raise StoreUnavailable(str(reply)) from reply
        return Found(_records(found), trimmed.decode() if isinstance(trimmed, bytes) else START)


async def still_says(reader: RecordReader, pool: str, position: str, fields: tuple[bytes, ...]) -> bool:
    """Whether the log says at a position what was read there, as far as it was not trimmed. Raises StoreUnavailable."""
    found = await reader.after(pool, before(position), 1)
    return may_lack(before(position), found.trimmed) or found.records == [Record(position, fields)]


async def preceding(client: Redis, pool: str, upto: str | None, count: int) -> list[Record]:
    """Return what a log holds up to and with `upto`, newest first; None begins at its end. Raises StoreUnavailable."""
    raw = await ask(client.xrevrange(keys.log(pool), upto or "+", count=count))
    return [
        Record(as_text(position), tuple(text for pair in fields.items() for text in pair)) for position, fields in raw
    ]


def may_lack(after: str, trimmed: str) -> bool:
    """Whether an entry that followed `after` may be among those below `trimmed`, which are gone.

    >>> may_lack("5-0", "5-1"), may_lack("5-0", "5-2"), may_lack("0-0", "0-0")
    (False, True, False)
    """
    return next_key(after) < entry_key(trimmed)


def _records(raw: object) -> list[Record]:
    """Unwrap the reply of XREAD: a mapping under RESP3, a list under RESP2, nothing when there is nothing."""
    if not raw:
        return []
    assert isinstance(raw, dict | list)
    entries = next(iter(raw.values())) if isinstance(raw, dict) else raw[0][1]
    return [Record(position.decode(), tuple(fields)) for position, fields in entries]

"""What the mirror of a pool asks of the store: hold its cursor, move it; and what notifiers say who read the topic.

Promises: the group `mirror` stands at the cursor, so that nothing beyond it is trimmed; the cursor only moves to what
the caller says the broker has; a topic that is not the one the pool goes to moves nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from contracts.errors import ConfigError
from contracts.positions import START
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.log import Poison
from contracts.store.words import Word

ELSEWHERE = (
    "HEADRACE_KAFKA__MIRROR: pool {pool} is mirrored to topic {topic}: name that one; or, without a mirror, `headrace "
    "consumers drop {pool} mirror`, and the next one begins anew with the oldest event"
)


class Hold(NamedTuple):
    """Where the holder of a pool's mirror stands, and in which epoch the log is."""

    cursor: str
    epoch: int


class Moved(NamedTuple):
    """What the topic holds now: entries and records since the cursor before, the last position of each partition."""

    upto: str
    entries: int
    records: int
    sent: Mapping[int, str]
    poison: Sequence[Poison] = ()


class MirrorCalls:
    """Calls of the mirror and of notifiers that read what it writes."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def lead(
        self, pool: str, token: str, lease_ms: int, topic: str, reason: str = "", failures: int = 0, now_ms: int = 0
    ) -> Hold | None:  # fmt: skip
        """Take or keep the mirror of a pool; None while another process has it, or the pool has no log.

        Raises ConfigError when the pool is mirrored to another topic.
        """
        args = [now_ms, token, lease_ms, topic, reason, failures]
        parts = replies.texts(await self._call("lead_mirror", _keys(pool), args))
        if parts[0] == Word.CONFLICT:
            raise ConfigError([ELSEWHERE.format(pool=pool, topic=parts[1])])
        return Hold(parts[1], int(parts[2])) if parts[0] == Word.APPLIED else None

    async def resign(self, pool: str, token: str) -> replies.Reply:
        """End the lease at once."""
        return replies.reply(await self._call("resign_archive", [keys.mirror(pool)], [token]))

    async def move(self, pool: str, token: str, seen: str, moved: Moved) -> bool:
        """Say what the topic holds after `seen`; False when the mirror is another's, or stands elsewhere."""
        args = [
            token, seen, moved.upto, moved.entries, moved.records, _places(moved.sent),
            orjson.dumps([[each.position, each.reason] for each in moved.poison]),
        ]  # fmt: skip
        parts = replies.texts(await self._call("move_mirror", [*_keys(pool), keys.poison(pool)], args))
        return parts[0] == Word.APPLIED

    async def planned(self, pool: str, topic: str, upto: Mapping[int, str]) -> str | None:
        """Say up to where partitions are planned; returns where the group `notifier` stands, None: not our mirror's."""
        parts = replies.texts(await self._call("note_planned", _keys(pool), [topic, _places(upto)]))
        return parts[1] if parts[0] == Word.APPLIED else None


def _keys(pool: str) -> list[str]:
    return [keys.mirror(pool), keys.log(pool), keys.meta(pool)]


def _places(places: Mapping[int, str]) -> bytes:
    return orjson.dumps({str(partition): position for partition, position in places.items() if position != START})

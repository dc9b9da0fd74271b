"""What the leader of a pool does: take the lead, make turns, resign, keep a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.words import Word
from contracts.store.write import KeyRing, Write, as_object


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as bytes: sent again unchanged until it has an answer, so a lost reply changes nothing."""

    number: int
    keys: tuple[str, ...]
    args: tuple[object, ...]


def build_turn(
    pool: str, token: str, number: int, lease_ms: int, decisions: Sequence[Write], *, cursor: str, entries_read: int,
    trim_below: str = "", set_aside: int = 0, now_ms: int = 0,
) -> Turn:  # fmt: skip
    """Encode a turn; `cursor` and `entries_read` say how far the leader has folded, `set_aside` what for."""
    fixed = [keys.leader(pool), keys.log(pool), keys.usage(pool), keys.meta(pool), keys.archive(pool)]
    ring = KeyRing(pool, fixed)
    writes = orjson.dumps([as_object(write, ring) for write in decisions])
    args = (now_ms, token, number, lease_ms, cursor, entries_read, trim_below, writes, set_aside)
    return Turn(number, tuple(ring.keys), args)


class Leadership:
    """Calls of one candidate."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def lead(self, pool: str, token: str, lease_ms: int, now_ms: int = 0) -> tuple[bool, int, int]:
        """Try to take or keep the lead. Returns (True, epoch, turn) or (False, 0, ms until the lease ends)."""
        parts = replies.texts(await self._call("lead", [keys.leader(pool)], [now_ms, token, lease_ms]))
        if parts[0] == Word.APPLIED:
            return True, int(parts[1]), int(parts[2])
        return False, 0, int(parts[1])

    async def resign(self, pool: str, token: str) -> replies.Reply:
        """End the lease at once."""
        return replies.reply(await self._call("resign", [keys.leader(pool)], [token]))

    async def turn(self, turn: Turn) -> replies.TurnReply:
        """Send a turn. FENCED: the lead is lost. Raises StoreUnavailable: send the same turn again."""
        return replies.turn(await self._call("turn", turn.keys, turn.args))

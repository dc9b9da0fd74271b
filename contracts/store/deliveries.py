"""What the notifier writes: planned deliveries, claims of due ones, outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from redis.asyncio import Redis

from contracts import events as ev
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import read_hash
from contracts.store.log import Poison
from contracts.store.write import KeyRing, Write, encode

KEEP_SETTLED_S = 3_600  # long enough to know it again when a lost group is read once more
KEEP_DEAD_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """A delivery to store; `fields` are hash fields (target, exact bytes, ...); `due_ms` 0 means now."""

    id: str
    fields: Mapping[str, str]
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClaimedDue:
    """Deliveries claimed in one call, the server's time at that moment, and when the next one is due."""

    now_ms: int
    next_due_ms: int | None
    ids: tuple[str, ...] = ()


class Deliveries:
    """Calls about webhook deliveries of a pool."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call = batcher.call
        self._client = client

    async def plan(
        self, pool: str, group: str, deliveries: Sequence[PlannedDelivery], acknowledge: Sequence[str],
        poison: Sequence[Poison] = (), now_ms: int = 0,
    ) -> int:  # fmt: skip
        """Store deliveries that do not exist yet, set poison aside and acknowledge the batch, all or nothing.

        Returns how many deliveries were new.
        """
        fixed = [keys.log(pool), keys.due(pool), keys.meta(pool), keys.poison(pool)]
        fixed += [keys.delivery(pool, delivery.id) for delivery in deliveries]
        listed = [[d.id, d.due_ms, [text for pair in d.fields.items() for text in pair]] for d in deliveries]
        aside = [[entry.position, entry.reason] for entry in poison]
        args = [now_ms, group, orjson.dumps(listed), orjson.dumps(aside), *acknowledge]
        return int(replies.texts(await self._call("plan", fixed, args))[1])

    async def claim_due(self, pool: str, most: int, claim_ms: int, now_ms: int = 0) -> ClaimedDue:
        """Claim up to `most` due deliveries for `claim_ms`."""
        parts = replies.texts(await self._call("claim_due", [keys.due(pool)], [now_ms, most, claim_ms]))
        return ClaimedDue(int(parts[0]), round(float(parts[1])) if parts[1] else None, tuple(parts[2:]))

    async def hold(self, pool: str, delivery_ids: Sequence[str], claim_ms: int, now_ms: int = 0) -> int:
        """Let claims run out `claim_ms` from now, 0 for at once; what was settled meanwhile stays settled.

        Returns how many claims changed.
        """
        args = [now_ms, claim_ms, *delivery_ids]
        return int(replies.texts(await self._call("hold", [keys.due(pool)], args))[1])

    async def leave(self, pool: str, group: str, idle_ms: int, leaving: str = "") -> int:
        """Remove consumers that hold nothing: those idle for `idle_ms`, and `leaving` at once."""
        return int(replies.texts(await self._call("leave", [keys.log(pool)], [group, idle_ms, leaving]))[1])

    async def read(self, pool: str, delivery_id: str) -> dict[str, str] | None:
        """Return a delivery's fields, or None when it is gone."""
        return await read_hash(self._client, keys.delivery(pool, delivery_id)) or None

    async def settle(
        self, pool: str, delivery_id: str, try_number: int, events: Sequence[ev.Event], fields: Mapping[str, str],
        next_due_ms: int | None, keep_s: int = KEEP_SETTLED_S, now_ms: int = 0,
    ) -> replies.Reply:  # fmt: skip
        """Record try number `try_number`; CONFLICT when another sender recorded it first.

        Without a next due time the delivery is settled, and its fields are kept for `keep_s`.
        """
        ring = KeyRing(pool, [keys.log(pool), keys.due(pool), keys.delivery(pool, delivery_id)])
        write = encode(Write(delivery_id, events, of_job=False), ring)
        flat = [text for pair in fields.items() for text in pair]
        due = "" if next_due_ms is None else str(next_due_ms)
        args = [now_ms, try_number, write, due, keep_s, *flat]
        return replies.reply(await self._call("settle_delivery", ring.keys, args))

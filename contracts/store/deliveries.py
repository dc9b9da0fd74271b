"""What the notifier writes: planned deliveries, claims of due ones, outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from redis.asyncio import Redis

from contracts import events as ev
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import read_hash
from contracts.store.write import KeyRing, Write, encode

KEEP_SETTLED_S = 86_400


@dataclass(frozen=True, slots=True)
class PlannedDelivery:
    """A delivery to store; `fields` are hash fields (target, exact bytes, ...); `due_ms` 0 means now."""

    id: str
    fields: Mapping[str, str]
    due_ms: int = 0


class Deliveries:
    """Calls about webhook deliveries of a pool."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call = batcher.call
        self._client = client

    async def plan(
        self, pool: str, group: str, deliveries: Sequence[PlannedDelivery], acknowledge: Sequence[str], cursor: str,
        now_ms: int = 0,
    ) -> int:  # fmt: skip
        """Store deliveries that do not exist yet and acknowledge the batch; returns how many were new."""
        fixed = [keys.log(pool), keys.due(pool), keys.meta(pool)]
        fixed += [keys.delivery(pool, delivery.id) for delivery in deliveries]
        listed = [[d.id, d.due_ms, [text for pair in d.fields.items() for text in pair]] for d in deliveries]
        args = [now_ms, group, orjson.dumps(listed), cursor, *acknowledge]
        return int(replies.texts(await self._call("plan", fixed, args))[1])

    async def claim_due(self, pool: str, most: int, claim_ms: int, now_ms: int = 0) -> tuple[list[str], int | None]:
        """Claim up to `most` due deliveries for `claim_ms`. Returns their ids and the next due time in ms."""
        parts = replies.texts(await self._call("claim_due", [keys.due(pool)], [now_ms, most, claim_ms]))
        return parts[1:], round(float(parts[0])) if parts[0] else None

    async def read(self, pool: str, delivery_id: str) -> dict[str, str] | None:
        """Return a delivery's fields, or None when it is gone."""
        return await read_hash(self._client, keys.delivery(pool, delivery_id)) or None

    async def settle(
        self, pool: str, delivery_id: str, try_number: int, events: Sequence[ev.Event], fields: Mapping[str, str],
        next_due_ms: int | None, now_ms: int = 0,
    ) -> replies.Reply:  # fmt: skip
        """Record try number `try_number`; CONFLICT when another sender recorded it first."""
        ring = KeyRing(pool, [keys.log(pool), keys.due(pool), keys.delivery(pool, delivery_id)])
        write = encode(Write(delivery_id, events, of_job=False), ring)
        flat = [text for pair in fields.items() for text in pair]
        due = "" if next_due_ms is None else str(next_due_ms)
        args = [now_ms, try_number, write, due, KEEP_SETTLED_S, *flat]
        return replies.reply(await self._call("settle_delivery", ring.keys, args))

"""What the notifier writes: planned deliveries, claims of due ones, outcomes; and how people see and move them.

Promises: planning twice makes one delivery; a claim removes nothing and runs out; over all senders an endpoint has no
more in flight than it takes, one while its circuit is open, and none above its rate; what waits is never forgotten.
"""

from collections.abc import Mapping, Sequence

import orjson
from redis.asyncio import Redis

from contracts import events as ev
from contracts.deliveries import (
    CIRCUIT,
    KEEP_DEAD_S,
    KEEP_SETTLED_S,
    Ask,
    Circuit,
    Claimed,
    DueEndpoints,
    EndpointRow,
    PlannedDelivery,
    Settlement,
    Survey,
)
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import read_hash
from contracts.store.log import Poison
from contracts.store.words import Word
from contracts.store.write import KeyRing, Write, encode

OVERDUE_MS = 60_000
SWEEP_MOST = 500
HOLD_MOST = 500
SENT_FIELDS = (
    "try",
    "base",
    "url",
    "tenant",
    "job",
    "event",
    "message",
    "body",
    "content",
    "traceparent",
    "planned",
    "model",
)
SHOWN_FIELDS = (
    "state", "try", "base", "endpoint", "job", "event", "message", "planned", "ended", "outcome", "after",
)  # fmt: skip
COPIED_FIELDS = ("url", "endpoint", "tenant", "job", "event", "message", "body", "content", "traceparent", "model")
HELD, ENDPOINT_DELETED = "held", "endpoint_deleted"


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

        Without a group nothing is acknowledged. Returns how many deliveries were new.
        """
        fixed = [keys.log(pool), keys.deliveries(pool), keys.meta(pool), keys.poison(pool)]
        listed = [delivery.encode() for delivery in sorted(deliveries, key=lambda delivery: delivery.sequence)]
        aside = [[entry.position, entry.reason] for entry in poison]
        args = [now_ms, group, orjson.dumps(listed), orjson.dumps(aside), *acknowledge]
        return _count(await self._call("plan", fixed, args))

    async def due_endpoints(self, pool: str, most: int, skip: int = 0, now_ms: int = 0) -> DueEndpoints:
        """Return up to `most` endpoints with something to do, after the first `skip`."""
        raw = await self._call("due_endpoints", [keys.deliveries(pool)], [now_ms, most, skip])
        now, next_due, *flat = replies.texts(raw)
        names = tuple(zip(flat[::2], flat[1::2], strict=True))
        return DueEndpoints(int(now), _ms(next_due), names)

    async def claim(
        self, pool: str, asks: Sequence[Ask], claim_ms: int, now_ms: int = 0
    ) -> tuple[int, tuple[Claimed, ...]]:
        """Claim due deliveries for `claim_ms`, with their fields; returns the server's time, too."""
        listed = [[ask.endpoint, ask.room, ask.most, ask.gap_ms, ask.burst] for ask in asks]
        args = [now_ms, claim_ms, orjson.dumps(listed), *SENT_FIELDS]
        raw = await self._call("claim", [keys.deliveries(pool)], args)
        assert isinstance(raw, list)
        return int(raw[0]), tuple(_claimed(row) for row in raw[1:])

    async def hold_claims(
        self, pool: str, claims: Mapping[str, Sequence[tuple[str, int]]], claim_ms: int, now_ms: int = 0
    ) -> int:
        """Let claims run out `claim_ms` from now, 0 for at once: (id, number of the try) by endpoint.

        What was settled meanwhile stays as it is. Returns how many claims changed.
        """
        listed = [[endpoint, *of_one] for endpoint, of_one in claims.items()]
        return _count(
            await self._call("hold_claims", [keys.deliveries(pool)], [now_ms, claim_ms, orjson.dumps(listed)])
        )

    async def settle(
        self, pool: str, settlement: Settlement, events: Sequence[ev.Event] = (), circuit: Circuit = CIRCUIT,
        now_ms: int = 0,
    ) -> replies.Settled:  # fmt: skip
        """Record one try; CONFLICT when another sender recorded it first."""
        ring = KeyRing(pool, [keys.log(pool), keys.deliveries(pool)])
        write = encode(Write(settlement.id, events, of_job=False), ring)
        flat = [text for pair in settlement.fields.items() for text in pair]
        args = [now_ms, write, orjson.dumps(settlement.encode(circuit)), *flat]
        word, *rest = replies.texts(await self._call("settle_delivery", ring.keys, args))
        if word != Word.APPLIED:
            return replies.Settled(Word(word))
        position, row, since_ms, warned, more = rest
        return replies.Settled(Word.APPLIED, position, int(row), int(since_ms), int(warned), more == "1")

    async def hold_endpoint(
        self, pool: str, endpoint: str, most: int = 500, *, state: str = HELD, now_ms: int = 0
    ) -> int:
        """Take waiting deliveries of an endpoint out of its queue: held, or done with as `endpoint_deleted`.

        Returns how many there were; what is in flight ends by itself, and is held by a later call.
        """
        kept = [KEEP_DEAD_S, "1"] if state == HELD else [KEEP_SETTLED_S, ""]
        return _count(
            await self._call("hold_endpoint", [keys.deliveries(pool)], [now_ms, endpoint, most, state, *kept])
        )

    async def hold_all(self, pool: str, endpoint: str, state: str = HELD) -> None:
        """Take all that waits for an endpoint out of its queue."""
        while await self.hold_endpoint(pool, endpoint, HOLD_MOST, state=state) == HOLD_MOST:
            pass

    async def expire(
        self, pool: str, endpoint: str, due_before_ms: int, endpoint_id: str | None = None, now_ms: int = 0
    ) -> int:
        """Give up what has been due since before that, with an event each; returns how many, at most `HOLD_MOST`."""
        args = [now_ms, endpoint, due_before_ms, HOLD_MOST, KEEP_DEAD_S, endpoint_id or ""]
        return _count(await self._call("expire_deliveries", [keys.log(pool), keys.deliveries(pool)], args))

    async def revive(
        self, pool: str, endpoint: str, since_ms: int = 0, until_ms: int | None = None, most: int = 500, now_ms: int = 0
    ) -> int:
        """Make due again what was given up or held in that time, up to `most`; returns how many."""
        until = "+inf" if until_ms is None else until_ms
        return _count(await self._call("revive", [keys.deliveries(pool)], [now_ms, endpoint, since_ms, until, most]))

    async def redeliver(self, pool: str, delivery_id: str, write_id: str, now_ms: int = 0) -> replies.Redelivered:
        """Send one again: with a new budget if it was given up, as a new generation if it is done, now if it waits.

        A repeat with the same write id changes nothing, however far it has come meanwhile.
        """
        stem, _, generation = delivery_id.rpartition("_")
        number = generation if generation.isdecimal() else "0"
        args = [now_ms, delivery_id, f"{stem}_", number, write_id, *COPIED_FIELDS]
        word, *rest = replies.texts(await self._call("redeliver", [keys.deliveries(pool)], args))
        return replies.Redelivered(Word(word), *rest)

    async def page(
        self, pool: str, tenant_id: str, *, below: str = "", limit: int = 50, prefix: str = ""
    ) -> list[tuple[str, dict[str, str]]]:
        """Return up to `limit` deliveries, newest job first, older than `below`, whose ids begin with `prefix`.

        Each with `SHOWN_FIELDS` as far as it has them, and `due`, its next time.
        """
        args = [tenant_id, below, limit, prefix, *SHOWN_FIELDS]
        raw = await self._call("page_deliveries", [keys.deliveries(pool)], args)
        assert isinstance(raw, list)
        return [(row[0].decode(), _fields(("due", *SHOWN_FIELDS), row[1:])) for row in raw]

    async def read(self, pool: str, delivery_id: str) -> dict[str, str] | None:
        """Return all fields of a delivery, or None when it is gone."""
        return await read_hash(self._client, keys.delivery(pool, delivery_id)) or None

    async def endpoint(self, pool: str, endpoint: str) -> EndpointRow:
        """Return how an endpoint does in this pool."""
        raw = await self._call("endpoint", [keys.deliveries(pool)], [endpoint])
        assert isinstance(raw, list)
        about, stats = _pairs(raw[0]), _pairs(raw[1])
        hours: dict[int, dict[str, int]] = {}
        for name, count in stats.items():
            hour, _, bucket = name.partition(" ")
            hours.setdefault(int(hour), {})[bucket] = int(count)
        row, since, ok, gate = (int(about.get(name, 0)) for name in ("row", "since", "ok", "gate"))
        waiting, in_flight, dead = raw[2:5]
        oldest = None if raw[5] is None else _ms(raw[5].decode())
        return EndpointRow(row, since, ok, gate, "open" in about, waiting, in_flight, dead, oldest, hours)

    async def mend(self, pool: str, endpoint: str, now_ms: int = 0) -> None:
        """Close an endpoint's circuit: its owner changed it, so what failed before says nothing more."""
        await self._call("mend_endpoint", [keys.deliveries(pool)], [now_ms, endpoint])

    async def warn(
        self, pool: str, endpoint: str, percent: int, since_ms: int, subject: str, event: ev.Event, now_ms: int = 0
    ) -> replies.Reply:
        """Say once that an endpoint has failed for so much of the time after which it is disabled."""
        ring = KeyRing(pool, [keys.log(pool), keys.deliveries(pool)])
        write = encode(Write(subject, (event,), of_job=False, hooked=frozenset({event.TYPE})), ring)
        args = [now_ms, endpoint, percent, since_ms, write]
        return replies.reply(await self._call("warn_endpoint", ring.keys, args))

    async def forget(self, pool: str, most: int = SWEEP_MOST, now_ms: int = 0) -> int:
        """Remove deliveries whose time to be kept is over; returns how many."""
        return _count(await self._call("forget_deliveries", [keys.deliveries(pool)], [now_ms, most]))

    async def survey(self, pool: str, now_ms: int = 0) -> Survey:
        """Count what waits, what is on its way, and what waits for too long."""
        raw = await self._call("survey", [keys.deliveries(pool)], [now_ms, OVERDUE_MS])
        assert isinstance(raw, list)
        waiting, in_flight, overdue, behind_circuits, circuits_open, outcomes = raw
        counts = {name: int(count) for name, count in _pairs(outcomes).items()}
        return Survey(waiting, in_flight, overdue, behind_circuits, circuits_open, counts)

    async def leave(self, pool: str, group: str, idle_ms: int, leaving: str = "") -> int:
        """Remove consumers that hold nothing: those idle for `idle_ms`, and `leaving` at once."""
        return _count(await self._call("leave", [keys.log(pool)], [group, idle_ms, leaving]))


def _count(raw: object) -> int:
    return int(replies.texts(raw)[1])


def _ms(text: str) -> int | None:
    return round(float(text)) if text else None


def _fields(names: Sequence[str], values: Sequence[bytes | None], errors: str = "replace") -> dict[str, str]:
    given = ((name, value) for name, value in zip(names, values, strict=True) if value is not None)
    return {name: value.decode(errors=errors) for name, value in given}


def _claimed(row: list[bytes | None]) -> Claimed:
    endpoint, delivery_id = row[0], row[1]
    assert endpoint is not None
    assert delivery_id is not None
    # What is no text must not keep the others from being sent: whoever encodes it again sets the delivery aside.
    return Claimed(endpoint.decode(), delivery_id.decode(), _fields(SENT_FIELDS, row[2:], "surrogateescape"))


def _pairs(flat: object) -> dict[str, str]:
    listed = replies.texts(flat)
    return dict(zip(listed[::2], listed[1::2], strict=True))

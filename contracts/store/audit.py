"""What an audit reads of the live state: each look is one transaction with the position the log had at that moment.

Reads only. Promises: what one look returns was all true at its position, so a fold of the log up to there must agree.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from contracts.errors import StoreUnavailable
from contracts.store import keys
from contracts.store.clients import as_text, ask

NOT_A_HASH = {"s": "not a hash"}
NOT_A_STRING = b"not a string"
Row = dict[str, str] | None


class Asked(NamedTuple):
    """A job to look at: with the first `body_bytes` of its body, and who holds its dedup key."""

    job_id: str
    tenant_id: str = ""
    body_bytes: int = 0
    dedup_hash: str = ""


class Live(NamedTuple):
    """What the store has of a job; None: nothing. `score`: in its tenant's list; `letter`: among the dead letters."""

    row: Row
    score: float | None
    body: bytes | None
    holder: str | None
    letter: float | None = None


class Sight(NamedTuple):
    """Live state at `position`, in the order it was asked for; None where there is nothing."""

    position: str
    jobs: list[Live]
    deliveries: list[Row]
    counters: dict[str, str]
    sizes: list[int]
    held: list[int]
    recounted: str  # when a repair last added to the counters
    letters: int  # how many dead letters are listed


class AuditReads:
    """Looks at a pool's live state."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def look(
        self, pool: str, jobs: Sequence[Asked] = (), deliveries: Sequence[str] = (), tenants: Sequence[str] = ()
    ) -> Sight:
        """Return jobs, deliveries, and how many jobs each tenant's list has and how many dedup keys are held in it."""
        pipe = self._client.pipeline(transaction=True)
        pipe.xinfo_stream(keys.log(pool))
        pipe.hgetall(keys.usage(pool))
        pipe.hget(keys.meta(pool), "recounted")
        pipe.zcard(keys.dead_letters(pool))
        for asked in jobs:
            pipe.hgetall(keys.job(pool, asked.job_id))
            pipe.zscore(keys.jobs(pool, asked.tenant_id), asked.job_id)
            pipe.zscore(keys.dead_letters(pool), asked.job_id)
            pipe.getrange(keys.body(pool, asked.job_id), 0, max(1, asked.body_bytes) - 1)
            if asked.dedup_hash:
                pipe.hget(keys.dedup_in_flight(pool, asked.tenant_id), asked.dedup_hash)
        for delivery_id in deliveries:
            pipe.hmget(keys.delivery(pool, delivery_id), ["state", "try"])
        for tenant in tenants:
            pipe.zcard(keys.jobs(pool, tenant))
            pipe.hlen(keys.dedup_in_flight(pool, tenant))
        about, counters, recounted, letters, *rows = await ask(pipe.execute(raise_on_error=False))
        if isinstance(about, Exception):
            raise StoreUnavailable(str(about))
        answers = iter(rows)
        seen = [_live(answers, asked) for asked in jobs]
        rest = list(answers)
        sizes = [0 if isinstance(raw, Exception) else int(raw) for raw in rest[len(deliveries) :]]
        return Sight(
            as_text(about["last-generated-id"]),
            seen,
            [_pair(raw) for raw in rest[: len(deliveries)]],
            _row(counters) or {},
            sizes[::2],
            sizes[1::2],
            _text(recounted or b""),
            0 if isinstance(letters, Exception) else int(letters),
        )

    async def poisoned(self, pool: str) -> set[str]:
        """Return the positions of events that the notifier could not plan, and set aside."""
        found = await ask(self._client.xrange(keys.poison(pool)))
        return {as_text(fields.get(b"at", b"")) for _, fields in found}

    async def job_ids(self, pool: str, count: int = 1000) -> AsyncIterator[list[str]]:
        """Give the ids of all jobs that have a hash; one that comes or goes meanwhile may be among them or not."""
        prefix, cursor = keys.job(pool, ""), 0
        while True:
            cursor, found = await ask(self._client.scan(cursor, match=_literal(prefix) + "*", count=count))
            yield [as_text(key)[len(prefix) :] for key in found]
            if not cursor:
                return

    async def listed(self, pool: str, tenant: str) -> AsyncIterator[list[str]]:
        """Give the ids in a tenant's list; no tenant: among the dead letters."""
        cursor, place = 0, keys.jobs(pool, tenant) if tenant else keys.dead_letters(pool)
        while True:
            cursor, found = await ask(self._client.zscan(place, cursor, count=1000))
            yield [as_text(member) for member, _ in found]
            if not cursor:
                return

    async def held(self, pool: str, tenant: str) -> dict[str, str]:
        """Return the dedup keys of a tenant that are held, and by which jobs."""
        raw = await ask(self._client.hgetall(keys.dedup_in_flight(pool, tenant)))
        return _row(raw) or {}


def _live(answers: Iterator[Any], asked: Asked) -> Live:
    row, score, letter, body = (next(answers) for _ in range(4))
    holder = next(answers) if asked.dedup_hash else None
    return Live(
        _row(row),
        None if isinstance(score, Exception) else score,
        NOT_A_STRING if isinstance(body, Exception) else body or None,
        None if isinstance(holder, Exception) or holder is None else _text(holder),
        None if isinstance(letter, Exception) else letter,
    )


def _row(raw: Any) -> Row:
    if isinstance(raw, Exception):
        return dict(NOT_A_HASH)
    return {_text(name): _text(value) for name, value in raw.items()} or None


def _pair(raw: Any) -> Row:
    if isinstance(raw, Exception):
        return dict(NOT_A_HASH)
    state, tries = raw
    return None if tries is None else {"state": _text(state or b""), "try": _text(tries)}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _literal(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)

"""What an audit reads of the live state: each look is one transaction with the position the log had at that moment.

Reads only. Promises: what one look returns was all true at its position, so a fold of the log up to there must agree.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis

from contracts.errors import StoreUnavailable
from contracts.ids import endpoint_of, event_of, is_delivery_id
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


class Queued(NamedTuple):
    """A delivery, and whether it is where its state says that it is; one that does not wait always is."""

    id: str
    state: str
    is_queued: bool


class EndedLists(NamedTuple):
    """Which jobs are listed to be forgotten, under which kind ('both': under each), while the log ended at `position`
    and was archived to `upto`; '' where no archivist ever was."""

    position: str
    upto: str
    listed: dict[str, str]


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

    async def queued(self, pool: str, count: int = 500) -> AsyncIterator[list[Queued]]:
        """Give all deliveries there are, each with whether it is in its queue."""
        prefix, cursor = keys.delivery(pool, ""), 0
        while True:
            cursor, found = await ask(self._client.scan(cursor, match=_literal(prefix) + "*", count=count))
            names = [as_text(key)[len(prefix) :] for key in found]
            if listed := [name for name in names if is_delivery_id(name)]:
                yield await self._queued(pool, listed)
            if not cursor:
                return

    async def _queued(self, pool: str, delivery_ids: Sequence[str]) -> list[Queued]:
        pipe = self._client.pipeline(transaction=True)
        for delivery_id in delivery_ids:
            name, job_id = endpoint_of(delivery_id), event_of(delivery_id)[0]
            chain = keys.chain(pool, name, job_id)
            pipe.hmget(keys.delivery(pool, delivery_id), ["state", "job"])
            pipe.zscore(keys.due_of(pool, name), delivery_id)
            pipe.zscore(keys.due(pool), name)
            pipe.zscore(chain, delivery_id)
            pipe.zrange(chain, 0, 0)
        answers = await ask(pipe.execute(raise_on_error=False))
        raw = [None if isinstance(each, Exception) else each for each in answers]
        return [_placed(delivery_id, raw[at * 5 : at * 5 + 5]) for at, delivery_id in enumerate(delivery_ids)]

    async def ended(self, pool: str) -> EndedLists:
        """Return the lists from which jobs are forgotten."""
        pipe = self._client.pipeline(transaction=True)
        pipe.xinfo_stream(keys.log(pool))
        pipe.hget(keys.archive(pool), "upto")
        for kind in keys.ENDED_KINDS:
            pipe.zrange(keys.ended(pool, kind), 0, -1)
        about, upto, *lists = await ask(pipe.execute())
        listed = dict[str, str]()
        for kind, found in zip(keys.ENDED_KINDS, lists, strict=True):
            for raw in found:
                job_id = _text(raw)
                listed[job_id] = "both" if job_id in listed else kind
        return EndedLists(as_text(about["last-generated-id"]), _text(upto or b""), listed)

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


def _placed(delivery_id: str, answers: Sequence[Any]) -> Queued:
    about, due, line, place, first = answers
    state, job_id = (_text(each or b"") for each in about or (b"", b""))
    fits = True  # one that is of no job is in no order
    if state == "waiting":
        fits = due is not None and line is not None
    elif state == "blocked" and job_id == event_of(delivery_id)[0]:
        fits = place is not None and bool(first) and as_text(first[0]) != delivery_id
    return Queued(delivery_id, state, fits)


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

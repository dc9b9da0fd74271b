"""What an audit reads of the live state: each look is one transaction with the position the log had at that moment.

Reads only. Promises: what one look returns was all true at its position, so a fold of the log up to there must agree.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.errors import StoreUnavailable
from contracts.store import keys
from contracts.store.clients import LOST, as_text

NOT_A_HASH = {"s": "not a hash"}
Row = dict[str, str] | None


class Sight(NamedTuple):
    """Live state at `position`, in the order it was asked for; None where there is nothing."""

    position: str
    hashes: list[Row]
    scores: list[float | None]
    deliveries: list[Row]
    usage: dict[str, str]
    sizes: list[int]


class AuditReads:
    """Looks at a pool's live state."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def look(
        self, pool: str, jobs: Sequence[tuple[str, str]] = (), deliveries: Sequence[str] = (),
        tenants: Sequence[str] = (),
    ) -> Sight:  # fmt: skip
        """Return the hashes and list scores of jobs (id, tenant), deliveries, and sizes of tenants' lists."""
        pipe = self._client.pipeline(transaction=True)
        pipe.xinfo_stream(keys.log(pool))
        pipe.hgetall(keys.usage(pool))
        for job_id, tenant in jobs:
            pipe.hgetall(keys.job(pool, job_id))
            pipe.zscore(keys.jobs(pool, tenant), job_id)
        for delivery_id in deliveries:
            pipe.hmget(keys.delivery(pool, delivery_id), ["state", "try"])
        for tenant in tenants:
            pipe.zcard(keys.jobs(pool, tenant))
        about, usage, *rows = await _ask(pipe.execute(raise_on_error=False))
        if isinstance(about, Exception):
            raise StoreUnavailable(str(about))
        of_jobs, rest = rows[: 2 * len(jobs)], rows[2 * len(jobs) :]
        return Sight(
            as_text(about["last-generated-id"]),
            [_row(raw) for raw in of_jobs[::2]],
            [None if isinstance(raw, Exception) else raw for raw in of_jobs[1::2]],
            [_pair(raw) for raw in rest[: len(deliveries)]],
            _row(usage) or {},
            [0 if isinstance(raw, Exception) else int(raw) for raw in rest[len(deliveries) :]],
        )

    async def job_ids(self, pool: str, count: int = 1000) -> AsyncIterator[list[str]]:
        """Give the ids of all jobs that have a hash; one that comes or goes meanwhile may be among them or not."""
        prefix, cursor = keys.job(pool, ""), 0
        while True:
            cursor, found = await _ask(self._client.scan(cursor, match=_literal(prefix) + "*", count=count))
            yield [as_text(key)[len(prefix) :] for key in found]
            if not cursor:
                return

    async def listed(self, pool: str, tenant: str) -> AsyncIterator[list[str]]:
        """Give the ids in a tenant's list."""
        cursor = 0
        while True:
            cursor, found = await _ask(self._client.zscan(keys.jobs(pool, tenant), cursor, count=1000))
            yield [as_text(member) for member, _ in found]
            if not cursor:
                return


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


async def _ask(call: Any) -> Any:
    try:
        return await call
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error

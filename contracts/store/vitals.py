"""How the store is: what readiness, admission and the doctor look at. Reads only.

Promises two round trips at most and no judgement: whoever reads decides what is too much.
"""

from dataclasses import dataclass, field

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.errors import StoreUnavailable
from contracts.positions import entry_ms
from contracts.store import keys
from contracts.store.clients import LOST, as_text


@dataclass(frozen=True, slots=True)
class ArchiveVitals:
    """A pool's archive: until when its archivist leads, what it holds, how old the oldest entry is that it lacks."""

    until_ms: int
    entries: int
    behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """The store at one moment. `memory_ratio` is 0 without a limit; `log_bytes` is per pool, sampled."""

    now_ms: int
    is_writable: bool
    memory_ratio: float
    delayed_fsync_count: int
    eviction_policy: str  # "" when the server does not say
    keeps_file: bool
    log_bytes: dict[str, int]
    leader_until_ms: dict[str, int]
    set_aside: dict[str, int] = field(default_factory=dict)  # jobs and slots out of choice after a mismatch, per pool
    archives: dict[str, ArchiveVitals] = field(default_factory=dict)  # of pools that ever had an archivist
    epochs: dict[str, int] = field(default_factory=dict)  # of the logs; 0: the pool is not open


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant, or everybody, holds in a pool: jobs that have not ended, and the bytes of their bodies."""

    open_jobs: int
    open_bytes: int


async def read_vitals(client: Redis, pools: tuple[str, ...]) -> Vitals:
    """Read the vitals of the store and of these pools. Raises StoreUnavailable."""
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.info("memory", "persistence", "replication")
    for pool in pools:
        pipe.memory_usage(keys.log(pool), samples=5)
        pipe.hmget(keys.leader(pool), ["until", "aside"])
        pipe.hmget(keys.archive(pool), ["until", "count", "upto"])
        pipe.hget(keys.meta(pool), "epoch")
    try:
        (seconds, micros), info, *rest = await pipe.execute()
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        archives = await _archives(client, now_ms, dict(zip(pools, rest[2::4], strict=True)))
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error
    limit = int(info.get("maxmemory", 0))
    return Vitals(
        now_ms=now_ms,
        is_writable=_is_writable(info),
        memory_ratio=int(info.get("used_memory", 0)) / limit if limit else 0.0,
        delayed_fsync_count=int(info.get("aof_delayed_fsync", 0)),
        eviction_policy=str(info.get("maxmemory_policy", "")),
        keeps_file=bool(int(info.get("aof_enabled", 0))),
        log_bytes={pool: int(used or 0) for pool, used in zip(pools, rest[::4], strict=True)},
        leader_until_ms={pool: int(until or 0) for pool, (until, _) in zip(pools, rest[1::4], strict=True)},
        set_aside={pool: int(count or 0) for pool, (_, count) in zip(pools, rest[1::4], strict=True)},
        archives=archives,
        epochs={pool: int(epoch or 0) for pool, epoch in zip(pools, rest[3::4], strict=True)},
    )


async def _archives(client: Redis, now_ms: int, told: dict[str, list[bytes | None]]) -> dict[str, ArchiveVitals]:
    """Return how the archives do; `told` is `until`, `count` and `upto` of each pool."""
    pools = {pool: fields for pool, fields in told.items() if fields[2] is not None}
    pipe = client.pipeline(transaction=False)
    for pool, fields in pools.items():
        pipe.xrange(keys.log(pool), min=f"({as_text(fields[2] or b'')}", count=1)
    waiting = await pipe.execute() if pools else []
    return {
        pool: ArchiveVitals(
            int(fields[0] or 0), int(fields[1] or 0), max(0, now_ms - entry_ms(as_text(first[0][0]))) if first else 0
        )
        for (pool, fields), first in zip(pools.items(), waiting, strict=True)
    }


async def read_usage(client: Redis, pool: str, tenant_id: str) -> Usage:
    """Read what admission counts for a tenant. Raises StoreUnavailable."""
    pipe = client.pipeline(transaction=False)
    pipe.zcount(keys.jobs(pool, tenant_id), 0, 0)
    pipe.hget(keys.usage(pool), f"b:{tenant_id}")
    try:
        open_jobs, open_bytes = await pipe.execute()
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error
    return Usage(int(open_jobs), int(open_bytes or 0))


async def read_pool_usage(client: Redis, pool: str) -> Usage:
    """Read what admission counts for a pool. Raises StoreUnavailable."""
    try:
        open_jobs, open_bytes = await client.hmget(keys.usage(pool), ["jobs", "bytes"])
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error
    return Usage(int(open_jobs or 0), int(open_bytes or 0))


def _is_writable(info: dict[str, object]) -> bool:
    """Whether the server takes writes and can keep them: a primary, loaded, its last AOF write in order."""
    is_primary = info.get("role", "master") == "master"
    is_loaded = not int(str(info.get("loading", 0)))
    return is_primary and is_loaded and info.get("aof_last_write_status", "ok") == "ok"

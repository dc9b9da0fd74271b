"""How the store is: what readiness, admission and the doctor look at. Reads only.

Promises two round trips at most and no judgement: whoever reads decides what is too much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis.asyncio import Redis

from contracts.positions import entry_ms
from contracts.store import keys
from contracts.store.clients import as_text, ask, server_ms

PER_POOL = 5  # answers


@dataclass(frozen=True, slots=True)
class ArchiveVitals:
    """A pool's archive: until when its archivist leads, what it holds, how old the oldest entry is that it lacks."""

    until_ms: int
    entries: int
    behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class MirrorVitals:
    """A pool's mirror: until when a process holds it, where it writes, why it does not, what it did, how late it is."""

    until_ms: int
    topic: str
    reason: str = ""
    records: int = 0
    set_aside: int = 0
    failures: int = 0
    behind_ms: int = 0


class Audited(NamedTuple):
    """What the last audit of a whole pool said, and when."""

    ok: bool
    at_ms: int


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
    mirrors: dict[str, MirrorVitals] = field(default_factory=dict)  # of pools whose log is, or was, mirrored
    audits: dict[str, Audited] = field(default_factory=dict)  # of pools that ever had one


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
        pipe.hmget(keys.meta(pool), ["epoch", "cursor:mirror", "audited"])
        pipe.hmget(keys.mirror(pool), ["until", "topic", "reason", "count", "aside", "failures"])
    now, info, *rest = await ask(pipe.execute())
    now_ms = server_ms(now)
    of = {pool: rest[at * PER_POOL : (at + 1) * PER_POOL] for at, pool in enumerate(pools)}
    behind = await _behind(client, now_ms, of)
    limit = int(info.get("maxmemory", 0))
    return Vitals(
        now_ms=now_ms,
        is_writable=_is_writable(info),
        memory_ratio=int(info.get("used_memory", 0)) / limit if limit else 0.0,
        delayed_fsync_count=int(info.get("aof_delayed_fsync", 0)),
        eviction_policy=str(info.get("maxmemory_policy", "")),
        keeps_file=bool(int(info.get("aof_enabled", 0))),
        log_bytes={pool: int(row[0] or 0) for pool, row in of.items()},
        leader_until_ms={pool: int(row[1][0] or 0) for pool, row in of.items()},
        set_aside={pool: int(row[1][1] or 0) for pool, row in of.items()},
        archives={
            pool: ArchiveVitals(int(row[2][0] or 0), int(row[2][1] or 0), behind[pool][0])
            for pool, row in of.items()
            if row[2][2] is not None
        },
        epochs={pool: int(row[3][0] or 0) for pool, row in of.items()},
        audits={pool: found for pool, row in of.items() if (found := _audited(as_text(row[3][2] or b""))) is not None},
        mirrors={pool: _mirror(row[4], behind[pool][1]) for pool, row in of.items() if row[4][1] is not None},
    )


def _audited(text: str) -> Audited | None:
    at_ms, _, ok = text.partition(" ")
    return Audited(ok == "1", int(at_ms)) if at_ms.isdecimal() else None


def _mirror(told: Sequence[bytes | None], behind_ms: int) -> MirrorVitals:
    until, topic, reason, records, aside, failures = (as_text(each or b"") for each in told)
    return MirrorVitals(
        int(until or 0), topic, reason, int(records or 0), int(aside or 0), int(failures or 0), behind_ms
    )  # fmt: skip


async def _behind(client: Redis, now_ms: int, of: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, int]]:
    """Return how old the oldest entry is that the archive of a pool lacks, and that its mirror lacks; 0: none."""
    pipe = client.pipeline(transaction=False)
    for pool, row in of.items():
        for upto in (row[2][2], row[3][1]):
            pipe.xrange(keys.log(pool), min=f"({as_text(upto or b'0-0')}", count=1)
    firsts = await ask(pipe.execute())
    ages = [max(0, now_ms - entry_ms(as_text(first[0][0]))) if first else 0 for first in firsts]
    return dict(zip(of, zip(ages[::2], ages[1::2], strict=True), strict=True))


async def read_usage(client: Redis, pool: str, tenant_id: str) -> Usage:
    """Read what admission counts for a tenant. Raises StoreUnavailable."""
    pipe = client.pipeline(transaction=False)
    pipe.zcount(keys.jobs(pool, tenant_id), 0, 0)
    pipe.hget(keys.usage(pool), f"b:{tenant_id}")
    open_jobs, open_bytes = await ask(pipe.execute())
    return Usage(int(open_jobs), int(open_bytes or 0))


async def read_pool_usage(client: Redis, pool: str) -> Usage:
    """Read what admission counts for a pool. Raises StoreUnavailable."""
    open_jobs, open_bytes = await ask(client.hmget(keys.usage(pool), ["jobs", "bytes"]))
    return Usage(int(open_jobs or 0), int(open_bytes or 0))


def _is_writable(info: dict[str, object]) -> bool:
    """Whether the server takes writes and can keep them: a primary, loaded, its last AOF write in order."""
    is_primary = info.get("role", "master") == "master"
    is_loaded = not int(str(info.get("loading", 0)))
    return is_primary and is_loaded and info.get("aof_last_write_status", "ok") == "ok"

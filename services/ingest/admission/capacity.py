"""Whether any device of a pool could ever hold a job: by what the registered workers say of their devices.

Promises: only a job that fits no known device is refused; where no worker is known, nobody knows, and it is accepted.
A device stays known for a while after its worker went, so that a restart refuses nothing. Judged from memory, which a
loop of its own keeps; only before a refusal is the store asked again, once a second at most.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from contracts.errors import StoreUnavailable
from services.ingest.edge.problems import Fault, Problem

KNOWN_S = 600.0
STALE_S = 60.0
SOON_S = 1.0
WATCH_EVERY_S = 5.0

MIB = 1 << 20
ANYTHING = 1 << 62  # a device that states no size takes any job

Hashes = Mapping[str, Mapping[str, str]]
ReadWorkers = Callable[[str], Awaitable[Hashes]]


@dataclass(slots=True)
class _Pool:
    """The largest device of each worker with the time it was seen last."""

    seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    read_s: float = float("-inf")

    @property
    def largest(self) -> int | None:
        return max((size for _, size in self.seen.values()), default=None)


class Capacity:
    """One for each process. `now_s` is a monotonic clock."""

    def __init__(self, read_workers: ReadWorkers, now_s: Callable[[], float]) -> None:
        self._read_workers, self._now_s = read_workers, now_s
        self._pools: dict[str, _Pool] = {}

    async def check(self, pool: str, job_bytes: int) -> None:
        """Raise Problem `unschedulable` for a job that no known device could ever hold."""
        known = self._pools.get(pool)
        if known is None or known.largest is None or job_bytes <= known.largest:
            return
        if self._now_s() - known.read_s >= SOON_S:
            await self.look(pool)
        if known.largest is not None and job_bytes > known.largest:
            raise _unschedulable(pool, job_bytes, known.largest)

    async def look(self, pool: str) -> None:
        """Read what the workers of a pool say now. Raises StoreUnavailable."""
        known = self._pools.setdefault(pool, _Pool())
        known.read_s = self._now_s()  # before the answer is here: nobody else need ask meanwhile
        workers = await self._read_workers(pool)
        now_s = self._now_s()
        known.seen = {worker: each for worker, each in known.seen.items() if now_s - each[0] < KNOWN_S}
        for worker, fields in workers.items():
            if (size := largest_device(fields.get("devices"))) is not None:
                known.seen[worker] = (now_s, size)

    async def watch(self, pools: Iterable[str], stop: asyncio.Event) -> None:
        """Look at the pools until `stop`: often while nothing is known of one, else now and then."""
        while not stop.is_set():
            for pool in pools:
                if self._is_due(pool):
                    with suppress(StoreUnavailable):  # readiness says so
                        await self.look(pool)
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_EVERY_S):
                    await stop.wait()

    def _is_due(self, pool: str) -> bool:
        known = self._pools.get(pool)
        return known is None or known.largest is None or self._now_s() - known.read_s >= STALE_S


def largest_device(text: str | None) -> int | None:
    """Return the size of the largest device a worker's hash describes; None when it describes none.

    >>> largest_device('[{"bytesTotal": 5}, {"bytesTotal": 7}]'), largest_device('[]')
    (7, None)
    """
    try:
        devices = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return None
    sizes = [each.get("bytesTotal") for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []
    return max((size or ANYTHING for size in sizes if isinstance(size, int)), default=None)


def _unschedulable(pool: str, job_bytes: int, largest: int) -> Problem:
    told = f"a job needs {-(-job_bytes // MIB)} MiB; the largest device of pool {pool} has {largest // MIB} MiB"
    return Problem("unschedulable", "", (Fault("/model", "too_large", told),))

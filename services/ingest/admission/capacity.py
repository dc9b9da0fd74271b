"""Whether any device of a pool could ever hold a job, and what it needs there: by what the registered workers say.

Promises: only a job that fits no known device is refused; where no worker is known, nobody knows, and it is accepted.
A device stays known for a while after its worker went, so that a restart refuses nothing. Judged from memory, which a
loop of its own keeps; only before a refusal is the store asked again, once a second at most. Headroom and padding never
refuse a job: on the largest device it has all of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import orjson

from contracts.errors import StoreUnavailable
from contracts.profiles import Prediction
from contracts.waiting import wait
from services.ingest.edge.problems import Fault, Problem

KNOWN_S = 600.0
STALE_S = 60.0
SOON_S = 1.0
WATCH_EVERY_S = 5.0

MIB = 1 << 20
ANYTHING = 1 << 62  # a device that states no size takes any job

Hashes = Mapping[str, Mapping[str, str]]
Fleet = tuple[tuple[str, bool], ...]  # kinds of devices, each with whether it is unlike what was measured
Pinned = tuple[str, str]  # digest of a model's files, versions of the code around them
ReadWorkers = Callable[[str], Awaitable[Hashes]]


@dataclass(frozen=True, slots=True)
class _Worker:
    """What a worker said of itself when it was seen last: its largest device, and which profiles it can use."""

    seen_s: float
    largest: int
    fits: Mapping[str, Fleet]
    pins: Mapping[str, "Pinned"] = field(default_factory=dict)


@dataclass(slots=True)
class _Pool:
    workers: dict[str, _Worker] = field(default_factory=dict)
    read_s: float = float("-inf")
    largest: int | None = None
    fleets: dict[str, Fleet] = field(default_factory=dict)
    pins: dict[str, set[Pinned]] = field(default_factory=dict)

    def renew(self, now_s: float) -> None:
        """Sum up what the workers say. Of profiles only those count that are there: the others may be old."""
        self.largest = max((worker.largest for worker in self.workers.values()), default=None)
        fleets: dict[str, set[tuple[str, bool]]] = {}
        for worker in self.workers.values():
            for model, fits in worker.fits.items() if worker.seen_s == now_s else ():
                fleets.setdefault(model, set()).update(fits)
        self.pins = {}
        for worker in self.workers.values():
            for model, pinned in worker.pins.items() if worker.seen_s == now_s else ():
                self.pins.setdefault(model, set()).add(pinned)
        self.fleets = {model: tuple(sorted(fits)) for model, fits in fleets.items()}


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

    def fleet(self, pool: str, model: str) -> Fleet:
        """Return the kinds of devices that serve a model, as far as their workers know its profile."""
        known = self._pools.get(pool)
        return () if known is None else known.fleets.get(model, ())

    async def pins(self, pool: str, model: str) -> set[Pinned]:
        """Return what workers run of a model, as they said within the last second. Raises StoreUnavailable."""
        known = self._pools.get(pool)
        if known is None or self._now_s() - known.read_s >= SOON_S:
            await self.look(pool)
        return self._pools[pool].pins.get(model, set())

    def room_for(self, pool: str, needed: Prediction) -> int:
        """Return what a job reserves that passed `check`: no more than the largest device has."""
        known = self._pools.get(pool)
        return needed.bytes if known is None or known.largest is None else min(needed.bytes, known.largest)

    async def look(self, pool: str) -> None:
        """Read what the workers of a pool say now. Raises StoreUnavailable."""
        known = self._pools.setdefault(pool, _Pool())
        known.read_s = self._now_s()  # before the answer is here: nobody else need ask meanwhile
        workers = await self._read_workers(pool)
        now_s = self._now_s()
        known.workers = {name: each for name, each in known.workers.items() if now_s - each.seen_s < KNOWN_S}
        for name, fields in workers.items():
            if (size := largest_device(fields.get("devices"))) is not None:
                told = read_fits(fields.get("profiles")), read_pins(fields.get("pins"))
                known.workers[name] = _Worker(now_s, size, *told)
        known.renew(now_s)

    async def watch(self, pools: Iterable[str], stop: asyncio.Event) -> None:
        """Look at the pools until `stop`: often while nothing is known of one, else now and then."""
        while not stop.is_set():
            for pool in pools:
                if self._is_due(pool):
                    with suppress(StoreUnavailable):  # readiness says so
                        await self.look(pool)
            await wait(stop, WATCH_EVERY_S)

    def _is_due(self, pool: str) -> bool:
        known = self._pools.get(pool)
        return known is None or known.largest is None or self._now_s() - known.read_s >= STALE_S


def largest_device(text: str | None) -> int | None:
    """Return what jobs may use of the largest device a worker's hash describes; None when it describes none.

    >>> largest_device('[{"bytesTotal": 5}, {"bytesTotal": 7, "bytesUsable": 6}]'), largest_device('[]')
    (6, None)
    """
    try:
        devices = orjson.loads(text or "[]")
    except orjson.JSONDecodeError:
        return None
    described = [each for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []
    sizes = [each.get("bytesUsable", each.get("bytesTotal")) for each in described]
    return max((size or ANYTHING for size in sizes if isinstance(size, int)), default=None)


def read_fits(text: str | None) -> dict[str, Fleet]:
    """Return by model on which kinds of devices a worker runs it, and whether its profile is of something unlike.

    >>> read_fits('{"a@1": [{"device": "cpu/x86_64", "unlike": ["driver 2 here, 1 in the audit"]}]}')
    {'a@1': (('cpu/x86_64', True),)}
    """
    try:
        told = orjson.loads(text or "{}")
        return {
            str(model): tuple((str(fit["device"]), bool(fit["unlike"])) for fit in fits) for model, fits in told.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError):
        return {}


def read_pins(text: str | None) -> dict[str, Pinned]:
    """Return by model what a worker says of its files and of the code around them.

    >>> read_pins('{"a@1": ["0af3", "headrace/1"]}'), read_pins("")
    ({'a@1': ('0af3', 'headrace/1')}, {})
    """
    try:
        return {str(model): (str(files), str(code)) for model, (files, code) in orjson.loads(text or "{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _unschedulable(pool: str, job_bytes: int, largest: int) -> Problem:
    needed = f"a job with these inputs needs {-(-job_bytes // MIB)} MiB"
    told = f"{needed}; the largest device of pool {pool} has {largest // MIB} MiB"
    return Problem("unschedulable", "", (Fault("/model", "too_large", told),))

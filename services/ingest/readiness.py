"""Whether this process can do its work: a verdict that is judged in the background and only read by probes.

Promises: a probe costs nothing and never waits for the store; one slow answer does not flip the verdict, a store that
is away does within a few seconds; a verdict that is no longer renewed counts as unhealthy by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from contracts.errors import HeadraceError
from contracts.store.vitals import Vitals
from contracts.telemetry import Logger
from contracts.waiting import wait

log: Logger = structlog.get_logger(service="ingest")

INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 5.0
STALE_AFTER_S = 15.0
FAILURES_TO_RED = 2
SUCCESSES_TO_GREEN = 2
# The first second of delayed fsync is what "everysec" means; more of them mean the disk cannot follow.
FSYNC_WINDOW_PROBES = 10

# A leader that died is replaced within its lease of a few seconds; longer means that nothing is being scheduled.
LEADERLESS_S = 10.0
# A mirror that starts again is back within its lease; longer, and the log grows for nobody.
MIRRORLESS_MS = 30_000
NOT_PROBED = "not probed yet"

JsonObject = dict[str, object]
Probe = Callable[[], Awaitable[Vitals]]


@dataclass(slots=True)
class Readiness:
    """The cached verdict. `clock` is monotonic, `wall_ms` is this host's wall time."""

    clock: Callable[[], float]
    wall_ms: Callable[[], int]
    memory_ratio_limit: float = 0.8
    log_bytes_limit: int = 4 << 30
    vitals: Vitals | None = None
    is_ready: bool = False
    reason: str = NOT_PROBED
    clock_offset_ms: int | None = None
    _failures: int = 0
    _successes: int = 0
    _judged_s: float = field(default=float("-inf"))
    _delays: list[int] = field(default_factory=list)
    _led_s: dict[str, float] = field(default_factory=dict)

    async def run_once(self, probe: Probe) -> None:
        """Probe the store and judge what it said."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                vitals = await probe()
        except (HeadraceError, TimeoutError) as error:
            self._count(f"log_unavailable: {type(error).__name__}")
            return
        if self.vitals is None:
            for warning in warnings_of(vitals):
                log.warning("store_is_set_up_badly", detail=warning)
        self.vitals = vitals
        self.clock_offset_ms = vitals.now_ms - self.wall_ms()
        self._note_leaders(vitals)
        self._count(self._fault(vitals))

    async def watch(self, probe: Probe, stop: asyncio.Event) -> None:
        """Probe until `stop` is set."""
        while not stop.is_set():
            await self.run_once(probe)
            await wait(stop, INTERVAL_S)

    @property
    def age_s(self) -> float:
        """Time since the last verdict."""
        return self.clock() - self._judged_s

    @property
    def verdict(self) -> tuple[bool, str]:
        """Whether the process is ready, and if not, why."""
        if self.is_ready and self.age_s > STALE_AFTER_S:
            return False, "the verdict is stale"
        return self.is_ready, self.reason

    def refuses_admission(self, pool: str) -> str | None:
        """Return the problem code for new work, None when there is room; running work is not affected."""
        if self.vitals is None:
            return None
        if self.vitals.memory_ratio > self.memory_ratio_limit:
            return "storage_full"
        if self.vitals.log_bytes.get(pool, 0) > self.log_bytes_limit:
            return "log_backlog"
        return None

    def server_ms(self) -> int | None:
        """Return the store's wall time as far as it is known."""
        return None if self.clock_offset_ms is None else self.wall_ms() + self.clock_offset_ms

    def document(self) -> JsonObject:
        """Write the verdict for people and probes."""
        is_ready, reason = self.verdict
        document: JsonObject = {
            "status": "ready" if is_ready else "unavailable",
            "reason": "" if is_ready else reason,
            "ageSeconds": round(min(self.age_s, 1e9), 3),
            "checks": {},
        }
        vitals = self.vitals
        if vitals is not None:
            schedulers = {
                pool: {"leads": until_ms > vitals.now_ms, "setAside": vitals.set_aside.get(pool, 0)}
                for pool, until_ms in vitals.leader_until_ms.items()
            }
            document["checks"] = {
                "log": {"writable": vitals.is_writable, "bytes": vitals.log_bytes},
                "store": {
                    "memoryRatio": round(vitals.memory_ratio, 4),
                    "evictionPolicy": vitals.eviction_policy,
                    "appendOnly": vitals.keeps_file,
                    "warnings": warnings_of(vitals),
                },
                "scheduler": schedulers,
                "archive": {
                    pool: {"leads": each.until_ms > vitals.now_ms, "behindSeconds": each.behind_ms // 1000}
                    for pool, each in vitals.archives.items()
                },
                "mirror": {
                    pool: {
                        "runs": each.until_ms > vitals.now_ms, "topic": each.topic, "reason": each.reason,
                        "behindSeconds": each.behind_ms // 1000,
                    }
                    for pool, each in vitals.mirrors.items()
                },
            }  # fmt: skip
        return document

    def _note_leaders(self, vitals: Vitals) -> None:
        for pool, until_ms in vitals.leader_until_ms.items():
            if until_ms > vitals.now_ms or pool not in self._led_s:
                self._led_s[pool] = self.clock()

    def _fault(self, vitals: Vitals) -> str:
        self._delays = [*self._delays[-FSYNC_WINDOW_PROBES:], vitals.delayed_fsync_count]
        if not vitals.is_writable:
            return "log_unavailable: the store takes no writes"
        if vitals.eviction_policy not in ("noeviction", ""):
            return f"store_may_evict: maxmemory-policy is {vitals.eviction_policy}"
        if vitals.memory_ratio > self.memory_ratio_limit:
            return "storage_full"
        if max(vitals.log_bytes.values(), default=0) > self.log_bytes_limit:
            return "log_backlog"
        if self._delays[-1] > self._delays[0] + 1:
            return "log_unavailable: the disk of the store does not keep up"
        for pool, led_s in self._led_s.items():
            if self.clock() - led_s > LEADERLESS_S:
                return f"no_scheduler: pool {pool} has had no leader for {self.clock() - led_s:.0f} s"
        for pool, count in vitals.set_aside.items():
            if count:
                return f"scheduler_mismatch: pool {pool} has set {count} of its jobs and slots aside"
        return ""

    def _count(self, fault: str) -> None:
        """Take one finding into account; '' is a good one. It takes several in a row to turn the verdict."""
        self._judged_s = self.clock()
        self._failures = self._failures + 1 if fault else 0
        self._successes = 0 if fault else self._successes + 1
        was_ready = self.is_ready
        if fault and self._failures >= FAILURES_TO_RED:
            self.is_ready, self.reason = False, fault
        elif not fault and (self._successes >= SUCCESSES_TO_GREEN or self.reason == NOT_PROBED):
            self.is_ready, self.reason = True, ""
        if was_ready is not self.is_ready:
            log.warning("readiness_changed", ready=self.is_ready, reason=self.reason)


def warnings_of(vitals: Vitals) -> list[str]:
    """Say what an operator should change, though it does not stop anything yet."""
    found = []
    if not vitals.keeps_file:
        found.append("appendonly is off: what the store holds is lost with its process")
    if vitals.eviction_policy != "noeviction":
        found.append(f"maxmemory-policy is {vitals.eviction_policy or 'unknown'}: it should be noeviction")
    for pool, mirror in vitals.mirrors.items():
        if mirror.until_ms + MIRRORLESS_MS < vitals.now_ms:
            found.append(
                f"nobody mirrors pool {pool} to {mirror.topic} any more, and its log is kept for that: start the "
                f"mirror, or `headrace consumers drop {pool} mirror`"
            )
    return found

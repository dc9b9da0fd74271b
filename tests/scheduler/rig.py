"""A pool under test: candidates in this process, workers that do what they are told, jobs by the dozen."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import orjson
import structlog

from contracts import events as ev
from contracts import ids
from contracts.retry import Backoff
from contracts.store import Store, Word
from contracts.store.attempts import Attempt, Offer, read_offer
from contracts.store.jobs import Limits
from contracts.store.log import Poison
from contracts.store.write import Write
from contracts.wire import Entry
from services.scheduler.config import SchedulerConfig
from services.scheduler.retention import Retention
from services.scheduler.service import Candidate
from services.scheduler.snapshots import fold_and_keep, load_state
from services.scheduler.turns import Rules

T = TypeVar("T")
POOL = "default"
PATIENCE_S = 30
RULES = Rules(Retention(3_600_000, 86_400_000), known_for_s=60, run_grace_ms=500, backoff=Backoff(base_ms=100))
CONFIG = SchedulerConfig(RULES, leader_lease_ms=1_500, tick_ms=200, worker_lease_ms=1_000)
# For tests that hold up this loop, and with it the beats of their workers, for longer than that lease.
PATIENT = replace(CONFIG, worker_lease_ms=20_000)
_numbers = itertools.count(1)


async def submit(store: Store, tenant_id: str = "t_a", run_at_ms: int | None = None, **facts: object) -> str:
    """Admit a job and return its id; `facts` are fields of job.created."""
    job_id = ids.mint_job_id(1_764_457_200_000, next(_numbers), "aa")
    fields: dict[str, object] = {"tenant_id": tenant_id, "model": "echo@1", "timeout_ms": 60_000, "body_bytes": 2}
    events: list[ev.Event] = [ev.JobCreated.model_validate(fields | facts)]
    if run_at_ms is not None:
        events.append(ev.JobScheduled(run_at_ms=run_at_ms))
    admitted = await store.jobs.admit(POOL, Write(job_id, events), b"{}", tenant_id, Limits(tenant_jobs=10**6))
    assert admitted.word is Word.APPLIED
    return job_id


class Log:
    """Follows the pool's log and lets a test wait for an event in it."""

    def __init__(self, store: Store) -> None:
        self._reader = store.tail(POOL, "0-0")
        self.entries: list[Entry] = []

    async def read(self, block_ms: int | None = None) -> list[Entry]:
        """Read what is new."""
        new = [entry for entry in await self._reader.read(1000, block_ms) if not isinstance(entry, Poison)]
        self.entries += new
        return new

    async def wait_for(self, event_type: str, subject: str | None = None, count: int = 1) -> Entry:
        """Wait until the log holds `count` events of the type (about the subject); return the last of them."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self.of(event_type, subject)) < count:
                await self.read(block_ms=500)
        return found[count - 1]

    def of(self, event_type: str, subject: str | None = None) -> list[Entry]:
        """Return what was read of this type."""
        return [e for e in self.entries if e.type == event_type and subject in (None, e.subject)]

    def types(self, subject: str) -> list[str]:
        """Return the types of the events about a subject, in order."""
        return [entry.type for entry in self.entries if entry.subject == subject]


class Worker:
    """A worker under the test's control: registers, beats, and does with its offers what the test says."""

    def __init__(self, store: Store, slots: int = 1, slot_bytes: int = 0, models: tuple[str, ...] = ("echo",)) -> None:
        self.id = ids.mint_worker_id(1, next(_numbers))
        self._store, self._models = store, models
        self._slots = tuple(
            ev.SlotInfo(index=i, device=f"cpu-h-0-{i}", kind="cpu", bytes=slot_bytes) for i in range(slots)
        )
        self._reader = store.work(POOL, self.id)
        self.held: list[tuple[str, int]] = []
        self.withdrawn: list[str] = []
        self._offers: list[tuple[str, Offer]] = []

    async def register(self) -> "Worker":
        event = ev.WorkerRegistered(worker_id=self.id, host="h", pid=1, slots=self._slots, models=self._models)
        await self._store.attempts.register(POOL, event, {})
        return self

    async def beat(self) -> Word:
        return (await self._store.attempts.heartbeat(POOL, self.id, self.held)).word

    @contextlib.asynccontextmanager
    async def beating(self, period_s: float = 0.1) -> AsyncIterator["Worker"]:
        """Beat in the background."""

        async def beat() -> None:
            while True:
                with contextlib.suppress(Exception):  # the store may be away: a worker goes on
                    await self.beat()
                await asyncio.sleep(period_s)

        task = asyncio.create_task(beat())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def offer(self) -> Offer:
        """Wait for the next offer that was not withdrawn."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._offers:
                await self.look(block_ms=500)
        return self._offers.pop(0)[1]

    async def look(self, block_ms: int = 1) -> None:
        """Take in what lies in the work stream."""
        for message in await self._reader.read(block_ms=block_ms):
            assert message.fields is not None
            kind, data = message.fields[b"kind"], message.fields[b"d"]
            if kind == b"offer":
                self._offers.append((message.position, read_offer(data)))
            elif kind == b"withdraw":
                gone = orjson.loads(data)["offerId"]
                self.withdrawn.append(gone)
                self._offers = [(at, offer) for at, offer in self._offers if offer.offer_id != gone]

    async def start(self, offer: Offer) -> Attempt:
        """Start an offer; it must be accepted."""
        attempt, word = await self.try_start(offer)
        assert word is Word.APPLIED
        return attempt

    async def try_start(self, offer: Offer) -> tuple[Attempt, Word]:
        attempt = Attempt(POOL, self.id, offer, offer.fence + 1, offer.attempt + 1)
        event = ev.JobStarted(
            worker_id=self.id, offer_id=offer.offer_id, slot=offer.slot, device=f"cpu-h-0-{offer.slot}",
            attempt=attempt.attempt,
        )  # fmt: skip
        word = (await self._store.attempts.start(attempt, event)).word
        if word is Word.APPLIED:
            self.held.append((attempt.job_id, attempt.fence))
        return attempt, word

    async def complete(self, attempt: Attempt, gpu_ms: int = 10) -> Word:
        events = [ev.JobDeviceReleased(gpu_ms=gpu_ms), ev.JobCompleted(attempt=attempt.attempt)]
        self.held = [held for held in self.held if held[0] != attempt.job_id]
        return (await self._store.attempts.emit(attempt, events, closes=True)).word

    async def run_next(self) -> str:
        """Start and complete the next offer; returns the job."""
        attempt = await self.start(await self.offer())
        assert await self.complete(attempt) is Word.APPLIED
        return attempt.job_id


class Served:
    """A candidate with a store of its own, as another process would have."""

    def __init__(self, url: str, config: SchedulerConfig) -> None:
        self._url, self._config = url, config
        self._store, self._stop = Store(url), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Candidate:
        await self._store.directory.open()
        await self._store.open_pool(POOL)
        state = await load_state(self._store, POOL)
        found = Candidate(self._store, POOL, state, self._config, structlog.get_logger(), self._keep_apart)
        self._tasks = [
            asyncio.create_task(found.run(self._stop)),
            asyncio.create_task(self._store.directory.follow(self._stop)),
        ]
        return found

    async def leave(self) -> None:
        """Stop as SIGTERM does: resign, then end."""
        self._stop.set()
        await self._tasks[0]
        self._tasks[1].cancel()
        await asyncio.gather(self._tasks[1], return_exceptions=True)
        await self._store.aclose()

    async def _keep_apart(self, pool: str) -> None:
        other = Store(self._url)
        try:
            await fold_and_keep(other, pool)
        finally:
            await other.aclose()


@contextlib.asynccontextmanager
async def candidate(url: str, config: SchedulerConfig = CONFIG) -> AsyncIterator[Candidate]:
    """Serve a candidate while the context lasts."""
    served = Served(url, config)
    found = await served.open()
    try:
        yield found
    finally:
        await served.leave()


async def until(fact: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """Wait until `fact`, something this process knows, is true; return it."""
    async with asyncio.timeout(seconds):
        while not (value := fact()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return value


async def eventually(read: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Read something of the store that nothing announces until it holds; return it."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(value := await read()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return value


def with_rules(config: SchedulerConfig, **changes: object) -> SchedulerConfig:
    """Return the configuration with other rules."""
    return replace(config, rules=replace(config.rules, **changes))  # type: ignore[arg-type]


async def submit_many(store: Store, count: int, **facts: object) -> list[str]:
    """Admit many jobs, a batch at a time."""
    found: list[str] = []
    while len(found) < count:
        found += await asyncio.gather(*(submit(store, **facts) for _ in range(min(500, count - len(found)))))  # type: ignore[arg-type]
    return found

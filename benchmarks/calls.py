"""The calls that take a job from admission to its end, without any service: for measuring each of them alone."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.payload import payload
from contracts import events as ev
from contracts import ids
from contracts.store import Store, Word
from contracts.store.attempts import Attempt, Offer
from contracts.store.jobs import Limits
from contracts.store.leadership import build_turn
from contracts.store.write import JobGuard, WorkEntry, Write

POOL, TENANT, TOKEN = "default", "t_default", "bench"
LEASE_MS = 600_000

Call = Callable[[Sequence[int]], Awaitable[object]]


@dataclass(slots=True)
class Script:
    """As many jobs as are needed, one worker, one leader."""

    store: Store
    worker_id: str
    attempts: list[Attempt]
    turn: int = 0

    @classmethod
    async def prepare(cls, store: Store, jobs: int) -> "Script":
        """Register the worker, take the lead, mint the ids."""
        worker_id = ids.mint_worker_id(1, 1)
        await store.attempts.register(POOL, ev.WorkerRegistered(worker_id=worker_id, host="h", pid=1, slots=()), {})
        await store.leadership.lead(POOL, TOKEN, LEASE_MS)
        attempts = []
        for number in range(jobs):
            job_id = ids.mint_job_id(1_764_457_200_000 + number, random.getrandbits(ids.RANDOM_BITS), "aa")
            offer = Offer(job_id, f"offer{number}", 0, 0, 0, 3, TENANT, "noop@1", 30_000)
            attempts.append(Attempt(POOL, worker_id, offer, fence=1, attempt=1))
        return cls(store, worker_id, attempts)

    def steps(self) -> Iterator[tuple[str, Call]]:
        """The verbs in the order of a job's life; each is called once for every job."""
        yield "admit", partial(_each, self.admit)
        yield "turn", self.offer
        yield "start", partial(_each, self.start)
        yield "emit", partial(_each, self.settle)

    async def admit(self, number: int) -> object:
        """Make the job durable."""
        event = ev.JobCreated(tenant_id=TENANT, model="noop@1", timeout_ms=30_000, body_bytes=555)
        write = Write(self.attempts[number].job_id, (event,))
        limits = Limits(tenant_jobs=1_000_000)
        return await self.store.jobs.admit(POOL, write, payload(), TENANT, limits)

    async def offer(self, numbers: Sequence[int]) -> object:
        """One turn with a decision for each job."""
        self.turn += 1
        decisions = [self._decision(self.attempts[number].offer) for number in numbers]
        turn = build_turn(POOL, TOKEN, self.turn, LEASE_MS, decisions, cursor="1-1", entries_read=1)
        return await self.store.leadership.turn(turn)

    def _decision(self, offer: Offer) -> Write:
        event = ev.JobAssigned(worker_id=self.worker_id, offer_id=offer.offer_id, slot=0, device="cpu-h-0-0")
        return Write(
            offer.job_id,
            (event,),
            guard=JobGuard(states=("queued",), fence=0, run=1),
            work=(WorkEntry(self.worker_id, "offer", offer.to_data()),),
        )

    async def start(self, number: int) -> object:
        """The accepted start."""
        attempt = self.attempts[number]
        event = ev.JobStarted(
            worker_id=self.worker_id, offer_id=attempt.offer.offer_id, slot=0, device="cpu-h-0-0", attempt=1
        )
        return await self.store.attempts.start(attempt, event)

    async def hand_over(self, number: int) -> None:
        """End the device part of a job and start the next one."""
        ending, starting = self.attempts[number], self.attempts[number + 1]
        event = ev.JobStarted(
            worker_id=self.worker_id, offer_id=starting.offer.offer_id, slot=0, device="cpu-h-0-0", attempt=1
        )
        released, started = await self.store.attempts.release_and_start(
            ending, ev.JobDeviceReleased(gpu_ms=20), starting, event
        )
        assert released.applied
        assert started.word is Word.APPLIED

    async def settle(self, number: int) -> object:
        """Device released and completed, in one call."""
        events = (ev.JobDeviceReleased(gpu_ms=1), ev.JobCompleted(attempt=1))
        return await self.store.attempts.emit(self.attempts[number], events, line=b'\n{"result":null}', closes=True)


async def _each(call: Callable[[int], Awaitable[object]], numbers: Sequence[int]) -> object:
    return await asyncio.gather(*(call(number) for number in numbers))

"""Cancels that meet their jobs at the very moment of dispatch: whatever wins, no room is lost."""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator

from contracts import events as ev
from contracts.store import Word
from contracts.store.attempts import Attempt, Offer
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from services.scheduler.verify import verify
from tests.ingest.api import Api
from tests.scheduler.rig import Log, Worker, candidate, submit, until

ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "15"))  # the field case asks for 500: 15 s
SLOTS = 4
RUN_S = 0.005  # so that a cancel can meet a running job as well
CALLER = Caller("t_a", "key_x", frozenset())


class BusyWorker(Worker):
    """Starts and ends whatever it is offered, a job that was to stop as cancelled; can be told to hold on."""

    running: set[str]
    go_on: asyncio.Event

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator["BusyWorker"]:
        self.running, self.go_on = set(), asyncio.Event()
        self.go_on.set()
        async with self.beating(), asyncio.TaskGroup() as attempts:
            serving = asyncio.create_task(self._serve(attempts))
            yield self
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _serve(self, attempts: asyncio.TaskGroup) -> None:
        slots = [asyncio.Lock() for _ in range(SLOTS)]
        while True:
            offer = await self._next()
            attempts.create_task(self._run(offer, slots[offer.slot]))

    async def _next(self) -> Offer:
        while not self._offers:
            await self.look(block_ms=200)
        return self._offers.pop(0)[1]

    async def _run(self, offer: Offer, slot: asyncio.Lock) -> None:
        async with slot:
            attempt, word = await self.try_start(offer)
            if word is not Word.APPLIED:
                return
            self.running.add(attempt.job_id)
            await self.go_on.wait()
            await asyncio.sleep(RUN_S)
            self.running.discard(attempt.job_id)
            await self._end(attempt)
            self.held = [held for held in self.held if held[0] != attempt.job_id]

    async def _end(self, attempt: Attempt) -> None:
        done: list[ev.Event] = [ev.JobDeviceReleased(gpu_ms=1), ev.JobCompleted(attempt=attempt.attempt)]
        reply = await self._store.attempts.emit(attempt, done, closes=True, not_cancelled=True)
        if reply.word is Word.CONFLICT:
            stopped: list[ev.Event] = [ev.JobDeviceReleased(gpu_ms=1), ev.JobCancelled(how="cooperative")]
            reply = await self._store.attempts.emit(attempt, stopped, closes=True)
        assert reply.word is Word.APPLIED


async def test_rooms_and_charges_never_leak_when_cancel_and_dispatch_meet(api: Api, store_url: str) -> None:
    """Field case 16: submit 10, cancel 5 at the moment of dispatch, again and again (500 rounds by hand)."""
    store, chance, log = api.store, random.Random(16), Log(api.store)
    reader = JobReader(api.service.context)
    canceller = Canceller(api.service.context, reader)
    ends = ("job.completed", "job.cancelled")
    async with (
        candidate(store_url) as leader,
        (await BusyWorker(store, slots=SLOTS).register()).working() as worker,  # type: ignore[attr-defined]
    ):
        for number in range(1, ROUNDS + 1):
            jobs = await asyncio.gather(*(submit(store) for _ in range(10)))
            await log.wait_for("job.assigned", chance.choice(jobs[:4]))
            seen = [await reader.need(CALLER, job_id) for job_id in chance.sample(jobs, 5)]
            outcomes = await asyncio.gather(*(canceller.apply(shown, CALLER) for shown in seen))
            assert {outcome.outcome for outcome in outcomes} <= {"cancelled", "requested", "ended"}
            while sum(len(log.of(end)) for end in ends) < number * 10:
                await log.read(block_ms=500)

        state = leader.state
        await until(lambda: not any(state.seating.on_worker.values()))
        assert state.policy.ledger.charges == {}
        slots = [slot for found in state.workers.values() for slot in found.slots.values()]
        assert [(slot.running, slot.deck) for slot in slots] == [(None, None)] * SLOTS
        worker.go_on.clear()
        last = await asyncio.gather(*(submit(store) for _ in range(10)))
        await until(lambda: len(worker.running) == SLOTS)  # all of the room is there
        worker.go_on.set()
        for job_id in last:
            await log.wait_for("job.completed", job_id)
        assert verify(log.entries) == []
    counts = {end: len(log.of(end)) for end in ends}
    assert sum(counts.values()) == ROUNDS * 10 + 10
    assert counts["job.cancelled"] > ROUNDS  # the cancels did meet jobs that had not ended

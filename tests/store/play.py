"""A leader, a worker and their jobs, for tests that need a job in a certain state and then look at one call."""

from collections.abc import Sequence

from contracts import events as ev
from contracts import ids
from contracts.store import Store, Word, keys
from contracts.store.attempts import Attempt, Offer
from contracts.store.jobs import Limits
from contracts.store.leadership import Turn, build_turn
from contracts.store.replies import Admission, TurnReply
from contracts.store.write import JobGuard, WorkEntry, WorkerGuard, Write, on_deck

POOL, TENANT, TOKEN = "default", "t_a", "token"
LEASE_MS = 60_000


class Play:
    """Everything is done through the public calls; `number` is the last turn sent."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0
        self.minted = 0

    async def open(self) -> "Play":
        await self.store.leadership.lead(POOL, TOKEN, LEASE_MS)
        self.worker = await self.registers()
        return self

    async def registers(self) -> str:
        worker = ids.mint_worker_id(1, self._next())
        event = ev.WorkerRegistered(worker_id=worker, host="h", pid=1, slots=())
        await self.store.attempts.register(POOL, event, {"host": "h"})
        return worker

    async def admits(self, body: bytes = b"{}", tenant: str = TENANT, limits: Limits | None = None) -> Admission:
        return await self.store.jobs.admit(
            POOL, self.created(self.mints(), body, tenant), body, tenant, limits or Limits()
        )

    def created(self, job_id: str, body: bytes = b"{}", tenant: str = TENANT) -> Write:
        event = ev.JobCreated(tenant_id=tenant, model="echo@1", timeout_ms=1_000, body_bytes=len(body))
        return Write(job_id, (event,))

    def mints(self) -> str:
        return ids.mint_job_id(1_764_457_200_000, self._next(), "aa")

    async def job(self, body: bytes = b"{}", tenant: str = TENANT) -> str:
        """Return a job that is queued."""
        job_id = self.mints()
        admitted = await self.store.jobs.admit(POOL, self.created(job_id, body, tenant), body, tenant, Limits())
        assert admitted.word is Word.APPLIED
        return job_id

    def offering(
        self, job_id: str, slot: int = 0, fence: int = 0, worker: str | None = None, batch: str = ""
    ) -> tuple[Offer, Write]:
        """Return an offer and the decision that makes it."""
        worker = worker or self.worker
        offer = Offer(job_id, f"offer{self._next()}", slot, fence, fence, 3, TENANT, "echo@1", timeout_ms=1_000)
        event = ev.JobAssigned(worker_id=worker, offer_id=offer.offer_id, slot=slot, device="cpu")
        write = Write(
            job_id,
            (event,),
            guard=JobGuard(states=("queued",), fence=fence),
            worker_guard=WorkerGuard(worker, open=True, deck_empty=slot, batch=batch),
            worker_fields=(on_deck(worker, slot, job_id, offer.offer_id, batch),),
            work=(WorkEntry(worker, "offer", offer.to_data()),),
        )
        return offer, write

    def turn(self, writes: Sequence[Write], *, cursor: str = "0-0", trim_below: str = "") -> Turn:
        """Build the next turn."""
        self.number += 1
        return build_turn(
            POOL, TOKEN, self.number, LEASE_MS, writes, cursor=cursor, entries_read=0, trim_below=trim_below
        )

    async def decides(self, *writes: Write) -> TurnReply:
        return await self.store.leadership.turn(self.turn(writes))

    async def offers(self, job_id: str, slot: int = 0, fence: int = 0) -> Offer:
        offer, write = self.offering(job_id, slot, fence)
        reply = await self.decides(write)
        assert [verdict.word for verdict in reply.verdicts] == [Word.APPLIED]
        return offer

    def starting(self, offer: Offer, worker: str | None = None) -> tuple[Attempt, ev.JobStarted]:
        worker, number = worker or self.worker, offer.attempt + 1
        event = ev.JobStarted(
            worker_id=worker, offer_id=offer.offer_id, slot=offer.slot, device="cpu", attempt=number
        )  # fmt: skip
        return Attempt(POOL, worker, offer, offer.fence + 1, number), event

    async def running(self, slot: int = 0, body: bytes = b"{}") -> Attempt:
        """Return the attempt of a new job that runs in this slot."""
        attempt, event = self.starting(await self.offers(await self.job(body), slot))
        started = await self.store.attempts.start(attempt, event)
        assert (started.word, started.body) == (Word.APPLIED, body)
        return attempt

    async def completes(self, attempt: Attempt) -> None:
        done = await self.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
        assert done.word is Word.APPLIED

    async def types(self, job_id: str) -> list[str]:
        """Return the types of the job's events."""
        history = await self.store.jobs.history(POOL, job_id)
        assert history is not None
        return [entry.type for entry in history.entries]

    async def log_length(self) -> int:
        return int(await self.store.client.xlen(keys.log(POOL)))

    def _next(self) -> int:
        self.minted += 1
        return self.minted

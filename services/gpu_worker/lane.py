"""One slot's loop: start what lies on deck, run it, hand the device over to the next, finish the old one beside it.

Promises: author code runs only after an accepted start, and not at all if the job was cancelled or the worker drains
meanwhile; at most FINISHING attempts are being finished beside the running one; what is held is listed at every moment.
"""

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import structlog

from contracts import events as ev
from contracts.models import ModelRegistry
from contracts.store import Word
from contracts.store.attempts import Attempt as Right
from contracts.store.attempts import Attempts, Offer
from contracts.store.replies import Started
from services.gpu_worker.finish import Desk, device_released, finish, tidy
from services.gpu_worker.running import Running
from services.gpu_worker.slots.outcome import Outcome, Stop, Verdict
from services.gpu_worker.slots.slot import Slot, SlotQuarantined
from services.gpu_worker.writer import AttemptWriter, GaveUp, until_answered

FINISHING = 2
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OnDeck:
    """An offer and the work entry that brought it."""

    offer: Offer
    position: str
    right: Right
    scratch: Path


@dataclass(frozen=True, slots=True)
class Shop:
    """What all lanes of one registration share."""

    worker_id: str
    pool: str
    attempts: Attempts
    models: ModelRegistry
    desk: Desk
    scratch_dir: Path
    artifacts_s: float
    handled: "set[str]"  # work entries to be acknowledged with the next heartbeat
    cancels: "set[tuple[str, int]]"  # asked for, maybe before we know that our start was accepted


class Lane:
    """The loop of one slot under one registration."""

    def __init__(self, index: int, slot: Slot, shop: Shop) -> None:
        self.index, self.slot = index, slot
        self._shop = shop
        self._deck: deque[OnDeck] = deque()
        self._arrived = asyncio.Event()
        self._starting: OnDeck | None = None
        self._held: dict[tuple[str, int], Running] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        self._current: Running | None = None
        self._before: Running | None = None  # the last attempt, while the store may not know that it freed its device
        self._closed = False
        self._folders: list[Path] = []  # empty scratch directories: making one costs more than starting a job
        self._made = itertools.count()

    def put_on_deck(self, offer: Offer, position: str) -> None:
        """Take an offer; its scratch directory is found now, not between two jobs."""
        shop = self._shop
        right = Right(shop.pool, shop.worker_id, offer, fence=offer.fence + 1, attempt=offer.attempt + 1)
        self._deck.append(OnDeck(offer, position, right, self._folders.pop() if self._folders else self._new_folder()))
        self._arrived.set()

    def withdraw(self, offer_id: str) -> None:
        """Forget an offer that no longer stands; one that is being started is answered by the store."""
        for waiting in [entry for entry in self._deck if entry.offer.offer_id == offer_id]:
            self._deck.remove(waiting)
            self._drop(waiting)

    def stop(self, job_id: str, fence: int, reason: Stop) -> None:
        """End that attempt if it is running here, and do not hold it back if it has ended."""
        self.slot.stop(job_id, fence, reason)

    def lose(self, job_id: str, fence: int) -> None:
        """Stop silently: the store says that this attempt is not ours."""
        running = self._held.get((job_id, fence))
        if running is not None and running is self._current:
            running.writer.fenced = True
            self.stop(job_id, fence, Stop.FENCED)

    @property
    def held(self) -> list[tuple[str, int]]:
        """What the heartbeat lists: all that was started and not settled, and a start on its way."""
        starting = [(self._starting.right.job_id, self._starting.right.fence)] if self._starting else []
        return [*self._held, *(key for key in starting if key not in self._held)]

    @property
    def cancels(self) -> frozenset[tuple[str, int]]:
        """Cancels that are known and whose attempts have not ended."""
        return frozenset(self._shop.cancels)

    def is_running(self, job_id: str) -> bool:
        """Tell whether author code of this job may be running."""
        return self._current is not None and self._current.right.job_id == job_id

    def accepted(self, key: tuple[str, int]) -> bool:
        """Tell whether the store has answered the start of this attempt."""
        return key in self._held

    def describe(self) -> dict[str, object]:
        """Describe the slot and what is reserved on its device: the larger of what runs and what lies on deck."""
        offers = [entry.offer for entry in self._deck] + ([self._current.right.offer] if self._current else [])
        model = self.slot.loaded_model
        state = {
            "index": self.index,
            "state": self.slot.state,
            "childPid": self.slot.child_pid,
            "model": model.reference if model else None,
        }
        return {"bytesReserved": max((offer.bytes for offer in offers), default=0), "slots": [state]}

    def close(self) -> list[OnDeck]:
        """Take nothing more; return what lay on deck."""
        self._closed = True
        self._arrived.set()
        left = list(self._deck)
        self._deck.clear()
        return left

    def hand_back(self) -> None:
        """End the running attempt at the cost of nobody."""
        if self._current is not None:
            self.stop(*self._current.key, Stop.HAND_BACK)

    def lose_all(self) -> None:
        """Stop silently whatever is running: the registration is gone."""
        for key in list(self._held):
            self.lose(*key)

    async def run(self) -> None:
        """Work until closed and until the last attempt is settled."""
        running: Running | None = None
        try:
            while running is not None or await self._next_arrived():
                running = await (self._serve(running) if running else self._start(self._deck.popleft()))
        except GaveUp:
            log.warning("lane_gave_up", slot=self.index)
        if self._finishing:
            await asyncio.wait(self._finishing)

    async def _next_arrived(self) -> bool:
        if self._before is not None:
            # by the log the slot would hold two attempts if our next start overtook the last one's release
            await self._before.freed.wait()
            self._before = None
        while not self._deck and not self._closed:
            self._arrived.clear()
            await self._arrived.wait()
        return bool(self._deck)

    async def _serve(self, running: Running) -> Running | None:
        """Run one attempt, then start the next in the call that gives the device back."""
        outcome = await self._perform(running)
        running.gpu_ms = running.elapsed_ms
        self._current = None
        while len(self._finishing) >= FINISHING:
            await asyncio.wait(self._finishing, return_when=asyncio.FIRST_COMPLETED)
        following = await self._hand_over(running, outcome) if self._deck else None
        self._before = None if running.released else running
        self._finish_beside(running, outcome)
        return following

    async def _perform(self, running: Running) -> Outcome:
        self._current = running
        refusal = self._refusal(running)
        if refusal is not None:
            return refusal
        spec = self._shop.models.find(running.right.offer.model)
        if spec is None:
            message = "this worker does not serve this version of the model"
            return Outcome(Verdict.FAILED, "model_load_failed", message)
        try:
            return await self.slot.run(running.attempt(spec, self.slot.device.bytes_total), running)
        except SlotQuarantined:
            return Outcome(Verdict.HANDED_BACK)
        except (ValueError, KeyError, TypeError, OSError) as error:
            log.error("attempt_not_run", job=running.right.job_id, detail=f"{type(error).__name__}: {error}")
            return Outcome(Verdict.FAILED, "internal", "the worker could not run this job")

    def _refusal(self, running: Running) -> Outcome | None:
        """Say why author code must not begin although the start was accepted."""
        if running.key in self._shop.cancels:
            return Outcome(Verdict.CANCELLED, how="cooperative")
        if self._closed:
            return Outcome(Verdict.HANDED_BACK)
        return None

    async def _start(self, entry: OnDeck) -> Running | None:
        self._starting = entry
        event = self._started_event(entry)

        async def call() -> Started:
            return await self._shop.attempts.start(entry.right, event, [entry.position])

        return self._accept(entry, await until_answered(call, call, self._shop.desk.over))

    async def _hand_over(self, running: Running, outcome: Outcome) -> Running | None:
        entry = self._starting = self._deck.popleft()
        released = device_released(running, outcome)
        started = await running.writer.release_and_start(
            released, entry.right, self._started_event(entry), [entry.position]
        )
        running.released = True
        return self._accept(entry, started)

    def _started_event(self, entry: OnDeck) -> ev.JobStarted:
        warm = self.slot.warm_model
        return ev.JobStarted(
            worker_id=self._shop.worker_id,
            offer_id=entry.offer.offer_id,
            slot=self.index,
            device=self.slot.device.name,
            attempt=entry.right.attempt,
            warm=warm is not None and warm is self._shop.models.find(entry.offer.model),
        )

    def _accept(self, entry: OnDeck, started: Started) -> Running | None:
        self._starting = None
        if started.word is not Word.APPLIED:  # withdrawn, cancelled or expired meanwhile
            self._drop(entry)
            return None
        job_id, fence = entry.right.job_id, entry.right.fence
        writer = AttemptWriter(
            self._shop.attempts, entry.right, self._shop.desk.over, lambda: self.stop(job_id, fence, Stop.FENCED)
        )
        running = Running(
            entry.right, started, writer, entry.scratch, self._shop.desk.artifacts, self._shop.artifacts_s
        )
        self._held[running.key] = running
        return running

    def _drop(self, entry: OnDeck) -> None:
        self._shop.handled.add(entry.position)
        self._folders.append(entry.scratch)

    def _new_folder(self) -> Path:
        folder = self._shop.scratch_dir / f"{self.index}-{next(self._made)}"
        folder.mkdir(parents=True)
        return folder

    def _finish_beside(self, running: Running, outcome: Outcome) -> None:
        task = asyncio.create_task(self._finish(running, outcome))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish(self, running: Running, outcome: Outcome) -> None:
        try:
            await finish(self._shop.desk, running, outcome)
        except GaveUp:
            log.warning("attempt_not_settled", job=running.right.job_id, fence=running.right.fence)
        finally:
            running.freed.set()
            del self._held[running.key]
            self._shop.cancels.discard(running.key)
            if await tidy(self._shop.desk, running, outcome):
                self._folders.append(running.scratch)

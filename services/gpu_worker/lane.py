"""One slot's loop: start what lies on deck, run it, hand the device over to the next, finish the old one beside it.

An offer runs by itself; the offers of a batch that lie on deck together are started one by one, each under its own
fence, and those whose start was accepted run in one pass. A member that ends before the pass does is settled at once.

Promises: author code runs only after an accepted start, and not at all if the job was cancelled or the worker drains
meanwhile; at most FINISHING attempts, or batches, are being finished beside the running one; what is held is listed at
every moment.
"""

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import structlog

from contracts import events as ev
from contracts.store import Word
from contracts.store.attempts import Attempt as Right
from contracts.store.attempts import Offer
from contracts.store.replies import Started
from services.gpu_worker.deck import SLOT_UNUSABLE, OnDeck, Shop, decline, take_next
from services.gpu_worker.finish import device_released, finish, tidy
from services.gpu_worker.performing import Performer
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.running import Running, budget_of
from services.gpu_worker.slots.outcome import Outcome, Stop
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.writer import AttemptWriter, GaveUp, until_answered

FINISHING = 2
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Described:
    """A slot as people see it, and what is reserved for it on its device."""

    bytes_reserved: int
    slot: dict[str, object]


class Lane:
    """The loop of one slot under one registration."""

    def __init__(self, index: int, slot: Slot, shop: Shop) -> None:
        self.index, self.slot = index, slot
        self._shop, self._performer = shop, Performer(slot, shop, lambda: self._closed)
        self._deck: deque[OnDeck] = deque()
        self._arrived = asyncio.Event()
        self._starting: list[OnDeck] = []
        self._held: dict[tuple[str, int], Running] = {}
        self._finishing: set[asyncio.Task[None]] = set()
        self._current: list[Running] = []
        self._before: list[Running] = []  # the last pass, while the store may not know that it freed the device
        self._closed = False
        self._folders: list[Path] = []  # empty scratch directories: making one costs more than starting a job
        self._made = itertools.count()

    def put_on_deck(self, offer: Offer, position: str) -> None:
        """Take an offer; its scratch directory is found now, not between two jobs."""
        shop = self._shop
        right = Right(shop.pool, shop.worker_id, offer, fence=offer.fence + 1, attempt=offer.attempt + 1)
        self._deck.append(OnDeck(offer, position, right, self._folders.pop() if self._folders else self._new_folder()))
        self._expect()
        self._arrived.set()

    def withdraw(self, offer_id: str) -> None:
        """Forget an offer that no longer stands; one that is being started is answered by the store."""
        for waiting in [entry for entry in self._deck if entry.offer.offer_id == offer_id]:
            self._deck.remove(waiting)
            self._drop(waiting)

    def _expect(self) -> None:
        """Let the device know what comes next, so that a model which is not there is on its way."""
        comes = [(self._shop.models.find(entry.offer.model), entry.offer) for entry in (*self._starting, *self._deck)]
        wants = [Want(spec, budget_of(offer, spec), offer.alone) for spec, offer in comes if spec is not None]
        self.slot.expect(wants)

    def stop(self, job_id: str, fence: int, reason: Stop) -> None:
        """End that attempt if it is running here, and do not hold it back if it has ended."""
        self._shop.bringing.stop((job_id, fence), reason)
        self.slot.stop(job_id, fence, reason)

    def lose(self, job_id: str, fence: int) -> None:
        """Stop silently: the store says that this attempt is not ours."""
        running = self._held.get((job_id, fence))
        if running is not None and running in self._current:
            running.writer.fenced = True
            self.stop(job_id, fence, Stop.FENCED)

    @property
    def held(self) -> list[tuple[str, int]]:
        """What the heartbeat lists: all that was started and not settled, and a start on its way."""
        starting = [(entry.right.job_id, entry.right.fence) for entry in self._starting]
        return [*self._held, *(key for key in starting if key not in self._held)]

    @property
    def cancels(self) -> frozenset[tuple[str, int]]:
        """Cancels that are known and whose attempts have not ended."""
        return frozenset(self._shop.cancels)

    def is_running(self, job_id: str) -> bool:
        """Tell whether author code of this job may be running."""
        return any(running.right.job_id == job_id for running in self._current)

    def accepted(self, key: tuple[str, int]) -> bool:
        """Tell whether the store has answered the start of this attempt."""
        return key in self._held

    def describe(self) -> Described:
        """Describe the slot and what is reserved for it: the larger of what runs and what lies on deck."""
        running_bytes = sum(running.right.offer.bytes for running in self._current)
        deck_bytes = sum(entry.offer.bytes for entry in self._deck)
        model = self.slot.loaded_model
        slot = {
            "index": self.index,
            "state": self.slot.state,
            "childPid": self.slot.child_pid,
            "model": model.reference if model else None,
            "waitsFor": self.slot.waits_for,
        }
        return Described(max(running_bytes, deck_bytes), slot)

    def close(self) -> list[OnDeck]:
        """Take nothing more; return what lay on deck."""
        self._closed = True
        self._arrived.set()
        left = list(self._deck)
        self._deck.clear()
        self._expect()
        return left

    def hand_back(self) -> None:
        """End what runs at the cost of nobody."""
        for running in list(self._current):
            self.stop(*running.key, Stop.HAND_BACK)

    def lose_all(self) -> None:
        """Stop silently whatever is running: the registration is gone."""
        for key in list(self._held):
            self.lose(*key)

    async def run(self) -> None:
        """Work until closed and until the last attempt is settled."""
        running: list[Running] = []
        try:
            while running or await self._next_arrived():
                running = await (self._serve(running) if running else self._start(take_next(self._deck)))
        except GaveUp:
            log.warning("lane_gave_up", slot=self.index)
        if self._finishing:
            await asyncio.wait(self._finishing)

    async def _next_arrived(self) -> bool:
        for before in self._before:
            # by the log the slot would hold two attempts if our next start overtook the last one's release
            await before.freed.wait()
        self._before = []
        while True:
            if self.slot.quarantined:
                await self._decline_deck()
            if self._deck or self._closed:
                return bool(self._deck)
            self._arrived.clear()
            await self._arrived.wait()

    async def _decline_deck(self) -> None:
        """Give back what lies on deck of a slot that is out of service: it starts elsewhere, or here later."""
        while self._deck:
            entry = self._deck.popleft()
            await decline(self._shop, entry.offer, SLOT_UNUSABLE)
            self._drop(entry)

    async def _serve(self, members: list[Running]) -> list[Running]:
        """Run one attempt, then start the next in the call that gives the device back; or run a batch."""
        if len(members) > 1:
            await self._serve_batch(members)
            return []
        (running,) = self._current = members
        outcome = await self._performer.one(running)
        running.gpu_ms = running.elapsed_ms
        self._current = []
        while len(self._finishing) >= FINISHING:
            await asyncio.wait(self._finishing, return_when=asyncio.FIRST_COMPLETED)
        following = await self._hand_over(running, outcome) if self._deck and not self.slot.quarantined else []
        self._before = [] if running.released else [running]
        self._finish_beside(running, outcome)
        return following

    async def _serve_batch(self, batch: list[Running]) -> None:
        """Run the members in one pass; each is settled when it has ended, tidied up when the pass has."""
        self._current, over = list(batch), asyncio.Event()

        def leave(running: Running, outcome: Outcome) -> None:
            self._current.remove(running)
            self._finish_beside(running, outcome, over)

        try:
            await self._performer.batch(batch, leave)
        finally:
            over.set()
        self._before = batch
        while len(self._finishing) >= FINISHING * len(batch):
            await asyncio.wait(self._finishing, return_when=asyncio.FIRST_COMPLETED)

    async def _start(self, entries: list[OnDeck]) -> list[Running]:
        """Ask for the starts; returns what was accepted."""
        self._starting += entries
        if len(entries) == 1:
            return await self._start_one(entries[0])
        started = await asyncio.gather(*(self._start_one(entry) for entry in entries))
        return [running for accepted in started for running in accepted]

    async def _start_one(self, entry: OnDeck) -> list[Running]:
        event = self._started_event(entry)

        async def call() -> Started:
            return await self._shop.attempts.start(entry.right, event, [entry.position])

        return self._accept(entry, await until_answered(call, call, self._shop.desk.over))

    async def _hand_over(self, running: Running, outcome: Outcome) -> list[Running]:
        """Release the device and start the first of what comes next in one call, then the others of its batch."""
        entry, *others = entries = take_next(self._deck)
        self._starting += entries
        released = device_released(running, outcome)
        started = await running.writer.release_and_start(
            released, entry.right, self._started_event(entry), [entry.position]
        )
        running.released = True
        accepted = self._accept(entry, started)
        for batch in await asyncio.gather(*map(self._start_one, others)) if others else ():
            accepted += batch
        return accepted

    def _started_event(self, entry: OnDeck) -> ev.JobStarted:
        spec = self._shop.models.find(entry.offer.model)
        return ev.JobStarted(
            worker_id=self._shop.worker_id,
            offer_id=entry.offer.offer_id,
            slot=self.index,
            device=self.slot.device.name,
            attempt=entry.right.attempt,
            warm=spec is not None and self.slot.memory.is_warm(spec),
            batch=entry.offer.batch or None,
        )

    def _accept(self, entry: OnDeck, started: Started) -> list[Running]:
        self._starting.remove(entry)
        if started.word is not Word.APPLIED:  # withdrawn, cancelled or expired meanwhile
            self._drop(entry)
            return []
        job_id, fence = entry.right.job_id, entry.right.fence
        writer = AttemptWriter(
            self._shop.attempts, entry.right, self._shop.desk.over, lambda: self.stop(job_id, fence, Stop.FENCED)
        )
        running = Running(
            entry.right, started, writer, entry.scratch, self._shop.desk.intake, self._shop.artifacts_s, self._shop.live
        )
        self._held[running.key] = running
        return [running]

    def _drop(self, entry: OnDeck) -> None:
        self._expect()
        self._shop.handled.add(entry.position)
        self._folders.append(entry.scratch)

    def _new_folder(self) -> Path:
        folder = self._shop.scratch_dir / f"{self.index}-{next(self._made)}"
        folder.mkdir(parents=True)
        return folder

    def _finish_beside(self, running: Running, outcome: Outcome, over: asyncio.Event | None = None) -> None:
        task = asyncio.create_task(self._finish(running, outcome, over))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish(self, running: Running, outcome: Outcome, over: asyncio.Event | None) -> None:
        """Settle, then tidy up; of a batch only when its pass is `over`: author code may still use the directory."""
        try:
            await finish(self._shop.desk, running, outcome)
        except GaveUp:
            log.warning("attempt_not_settled", job=running.right.job_id, fence=running.right.fence)
        finally:
            running.freed.set()
            del self._held[running.key]
            self._shop.cancels.discard(running.key)
            if over is not None:
                await over.wait()
                outcome = outcome._replace(log_bytes=max(1, outcome.log_bytes))  # others may have printed since
            if await tidy(self._shop.desk, running, outcome):
                self._folders.append(running.scratch)

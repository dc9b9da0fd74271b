"""One registration of a supervisor: from `worker.registered` to `worker.drained`, or to the news that it was lost.

Promises: the heartbeat goes on in a task of its own until the last attempt is settled, also while draining and while
the store is away; nothing is started once draining has begun, and what lies on deck then is declined. A supervisor that
was given up by the scheduler ends all it runs and registers under another id.
"""

import asyncio
import random
from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any

import orjson
import structlog

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.ids import mint_token
from contracts.store import Store, Word
from contracts.store.replies import Beat, Reply
from contracts.waiting import wait
from services.gpu_worker.commands import Commands
from services.gpu_worker.config import WorkerConfig
from services.gpu_worker.deck import Shop
from services.gpu_worker.gpu_watch import GpuWatch
from services.gpu_worker.inbox import Inbox
from services.gpu_worker.lane import Lane
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.writer import GaveUp, until_answered

ACKNOWLEDGED_PER_BEAT = 500
log = structlog.get_logger()


class Ending(StrEnum):
    """Why a registration is over."""

    DRAINED = "drained"
    CALLED_BACK = "called_back"  # drained by an operator, who wants it to work again
    LOST = "lost"  # declared so by the scheduler, or the store has forgotten us


class Session:
    """See the module."""

    def __init__(self, store: Store, config: WorkerConfig, slots: Sequence[Slot], shop: Shop) -> None:
        self._store, self._config, self._shop = store, config, shop
        self.lanes = [Lane(index, slot, shop) for index, slot in enumerate(slots)]
        self._memories = list(dict.fromkeys(slot.memory for slot in slots))
        self._gpus = GpuWatch(self._memories)
        self._commands = Commands(store.attempts, shop, self._memories)
        self._inbox = Inbox(store, shop, self.lanes, self._commands)
        self._lost, self._done = asyncio.Event(), asyncio.Event()
        self._told: tuple[ev.SlotInfo, ...] = ()
        self._told_loads = 0
        # the devices, profiles and pins of models as they are in our hash
        self._shown = self._told_profiles = self._told_pins = ""

    @property
    def worker_id(self) -> str:
        return self._shop.worker_id

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> Ending:
        """Work until `stop`, then until all is settled or handed back; `hurry` ends the wait. Raises GaveUp."""
        await self._register(stop)
        lanes = [asyncio.create_task(lane.run(), name=f"lane-{lane.index}") for lane in self.lanes]
        duties = [
            asyncio.create_task(self._beat(), name="heartbeat"),
            asyncio.create_task(self._inbox.run(self._done), name="inbox"),
        ]
        try:
            await _first_of([*lanes, *duties], stop, self._lost, self._commands.leave)
            if self._commands.leave.is_set():
                await self._rest_until(lanes, stop)
            await (self._abandon(lanes) if self._lost.is_set() else self._drain(lanes, hurry))
        finally:
            self._done.set()
            await _cancelled([*lanes, *duties])
        if self._lost.is_set():
            return Ending.LOST
        return Ending.CALLED_BACK if self._commands.back.is_set() and not stop.is_set() else Ending.DRAINED

    async def _register(self, stop: asyncio.Event) -> None:
        await self._gpus.look()
        host, self._told, self._told_profiles = self._config.host, self.slots, self._shop.news.text
        self._told_pins = self._shop.desk.pins.text
        event = ev.WorkerRegistered(
            worker_id=self._shop.worker_id,
            host=host.name,
            pid=host.pid,
            slots=self._told,
            models=tuple(spec.reference for spec in self._shop.models if self._config.pool in spec.pools),
        )
        fields = {
            "host": host.name,
            "pid": str(host.pid),
            "boot": host.boot_id,
            "slots": str(len(self.lanes)),
            "devices": self._devices(),
            "profiles": self._told_profiles,
            "pins": self._told_pins,
        }

        async def call() -> str:
            return await self._store.attempts.register(self._config.pool, event, fields)

        await until_answered(call, call, stop)
        log.info("worker_registered", worker=self._shop.worker_id, slots=len(self.lanes))

    @property
    def slots(self) -> tuple[ev.SlotInfo, ...]:
        """What a choice may use now; a slot in quarantine is not among it."""
        return tuple(self._slot_info(lane) for lane in self.lanes if not lane.slot.quarantined)

    def _slot_info(self, lane: Lane) -> ev.SlotInfo:
        memory = lane.slot.memory
        device, room_bytes = memory.device, self._gpus.room_bytes(memory)
        return ev.SlotInfo(
            index=lane.index,
            device=device.name,
            kind=device.kind,
            bytes=room_bytes,
            models=memory.models,
            pinned=memory.ledger.pinned_bytes or None,
            total_bytes=memory.ledger.total_bytes - memory.ledger.reserve_bytes if device.is_gpu else None,
        )

    def _devices(self) -> str:
        """Describe devices and slots for people; decisions are made from the log alone."""
        devices = []
        for memory, lanes in groupby(self.lanes, key=lambda lane: lane.slot.memory):
            told = [lane.describe() for lane in lanes]
            devices.append(
                memory.device.describe()
                | self._gpus.describe(memory)
                | {
                    "bytesUsable": memory.ledger.total_bytes - memory.ledger.reserve_bytes,
                    "bytesReserved": sum(lane.bytes_reserved for lane in told),
                    "slots": [lane.slot for lane in told],
                    "models": memory.children.describe(),
                }
            )
        return orjson.dumps(devices).decode()

    async def _announce(self, event: ev.Event, state: str = "") -> Reply:
        write_id = mint_token(random.getrandbits(80))

        async def call() -> Reply:
            return await self._store.attempts.announce(self._config.pool, self._shop.worker_id, event, write_id, state)

        return await until_answered(call, call, self._shop.desk.over)

    async def _beat(self) -> None:
        while not self._done.is_set():
            try:
                await self._beat_once()
            except StoreUnavailable as error:
                log.warning("heartbeat_missed", detail=str(error))
            await wait(self._done, self._config.heartbeat_s)

    async def _beat_once(self) -> None:
        await self._gpus.look()
        held = [(lane, key, lane.accepted(key)) for lane in self.lanes for key in lane.held]
        handled = list(self._shop.handled)[:ACKNOWLEDGED_PER_BEAT]
        devices, profiles, pins = self._devices(), self._shop.news.text, self._shop.desk.pins.text
        beat = await self._store.attempts.heartbeat(
            self._config.pool,
            self._shop.worker_id,
            [key for _, key, _ in held],
            handled,
            devices if devices != self._shown else "",
            profiles if profiles != self._told_profiles else "",
            pins if pins != self._told_pins else "",
        )
        if beat.word is Word.GONE:
            self._lost.set()
            return
        self._shown, self._told_profiles, self._told_pins = devices, profiles, pins
        self._shop.handled.difference_update(handled)
        self._obey(held, beat)
        # Whoever starts a cold model is believed to hold nothing else until we have spoken, so speak after each load.
        loads = sum(lane.slot.memory.loads for lane in self.lanes)
        if (self.slots, loads) != (self._told, self._told_loads) and not self._shop.desk.draining.is_set():
            await self._tell_slots(self.slots, loads)

    async def _tell_slots(self, slots: tuple[ev.SlotInfo, ...], loads: int) -> None:
        event = ev.WorkerChanged(worker_id=self._shop.worker_id, slots=slots)
        write_id = mint_token(random.getrandbits(80))
        await self._store.attempts.announce(self._config.pool, self._shop.worker_id, event, write_id)
        self._told, self._told_loads = slots, loads

    def _obey(self, held: Sequence[tuple[Lane, tuple[str, int], bool]], beat: Beat) -> None:
        for (lane, (job_id, fence), accepted), flag in zip(held, beat.held, strict=True):
            if flag == "c":
                self._inbox.cancel(job_id, fence)
            elif flag == "0" and accepted:  # else our start was still on its way
                lane.lose(job_id, fence)

    async def _rest_until(self, lanes: Sequence["asyncio.Task[None]"], stop: asyncio.Event) -> None:
        """Finish for an operator, then hold nothing until this worker is called back, stopped or lost."""
        resting = asyncio.create_task(self._rest(lanes), name="rest")
        waits = [asyncio.create_task(event.wait()) for event in (stop, self._lost)]
        await asyncio.wait([resting, *waits], return_when=asyncio.FIRST_COMPLETED)
        await _cancelled([resting, *waits])

    async def _rest(self, lanes: Sequence["asyncio.Task[None]"]) -> None:
        await self._take_nothing_new(self._commands.reason or "asked to drain")
        finishing = asyncio.ensure_future(asyncio.wait(lanes))
        late = asyncio.create_task(self._deadline())
        await asyncio.wait([finishing, late], return_when=asyncio.FIRST_COMPLETED)
        for lane in self.lanes if not finishing.done() else ():
            lane.hand_back()
        await finishing
        late.cancel()
        await self._commands.over()
        await asyncio.gather(*(memory.empty() for memory in self._memories))
        await self._announce(ev.WorkerChanged(worker_id=self._shop.worker_id, slots=()), "drained")
        log.info("worker_rests", worker=self._shop.worker_id)
        await self._commands.back.wait()

    async def _deadline(self) -> None:
        await self._commands.deadline_set.wait()
        await asyncio.sleep(self._commands.deadline_s or 0.0)

    async def _take_nothing_new(self, reason: str) -> None:
        """Say that nothing new is taken, and give back what lies on deck."""
        self._shop.desk.draining.set()
        log.info("worker_draining", worker=self._shop.worker_id)
        left = [entry for lane in self.lanes for entry in lane.close()]
        await self._announce(ev.WorkerDraining(worker_id=self._shop.worker_id, reason=reason), "draining")
        for entry in left:
            await self._inbox.decline(entry.offer, "draining")

    async def _drain(self, lanes: Sequence["asyncio.Task[None]"], hurry: asyncio.Event) -> None:
        """Let what runs end, hand back what does not, leave in order."""
        over = asyncio.create_task(self._give_up_after(hurry))
        try:
            if not self._shop.desk.draining.is_set():
                await self._take_nothing_new("stopped")
            if not await _ends(lanes, self._config.drain_s, hurry):
                for lane in self.lanes:
                    lane.hand_back()
                await asyncio.wait(lanes)
            await self._announce(ev.WorkerDrained(worker_id=self._shop.worker_id), "gone")
        except GaveUp:
            log.warning("worker_left_without_a_word", worker=self._shop.worker_id)
        finally:
            over.cancel()

    async def _give_up_after(self, hurry: asyncio.Event) -> None:
        """Bound the whole drain, also while the store is away: the scheduler finds out by the lease then."""
        await wait(hurry, self._config.drain_s)
        bounds = self._config.bounds
        await asyncio.sleep(bounds.cancel_grace_s + bounds.term_grace_s + self._config.settle_s)
        self._shop.desk.over.set()

    async def _abandon(self, lanes: Sequence["asyncio.Task[None]"]) -> None:
        log.warning("worker_lost", worker=self._shop.worker_id)
        self._shop.desk.draining.set()
        self._shop.desk.over.set()
        for lane in self.lanes:
            lane.close()
            lane.lose_all()
        await asyncio.wait(lanes)


async def _first_of(tasks: Sequence["asyncio.Task[None]"], *events: asyncio.Event) -> None:
    """Wait for one of the events; a task that ends before is a fault and raises."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([*tasks, *waits], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task
                raise RuntimeError(f"{task.get_name()} ended by itself")
    finally:
        await _cancelled(waits)


async def _ends(tasks: Sequence["asyncio.Task[None]"], within_s: float, hurry: asyncio.Event) -> bool:
    waiting = asyncio.create_task(wait(hurry, within_s))
    everything = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait([waiting, everything], return_when=asyncio.FIRST_COMPLETED)
    await _cancelled([waiting, everything])
    return all(task.done() for task in tasks)


async def _cancelled(tasks: "Sequence[asyncio.Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

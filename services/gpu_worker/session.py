"""One registration of a supervisor: from `worker.registered` to `worker.drained`, or to the news that it was lost.

Promises: the heartbeat goes on in a task of its own until the last attempt is settled, also while draining and while
the store is away; an offer is answered (started, declined or found gone) whatever happens; nothing is started once
draining has begun. A supervisor that was given up by the scheduler ends all it runs and registers under another id.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
import structlog

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.ids import mint_token
from contracts.store import Store, Word
from contracts.store.attempts import Offer, read_offer
from contracts.store.log import Message, pause
from contracts.store.replies import Beat, Reply
from services.gpu_worker.config import WorkerConfig
from services.gpu_worker.lane import Lane, Shop
from services.gpu_worker.slots.outcome import Stop
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.writer import GaveUp, until_answered

MOST_REMEMBERED = 1_000
ACKNOWLEDGED_PER_BEAT = 500
BLOCK_MS = 1_000
log = structlog.get_logger()


class Ending(StrEnum):
    """Why a registration is over."""

    DRAINED = "drained"
    LOST = "lost"  # declared so by the scheduler, or the store has forgotten us


class Session:
    """See the module."""

    def __init__(self, store: Store, config: WorkerConfig, slots: Sequence[Slot], shop: Shop) -> None:
        self._store, self._config, self._shop = store, config, shop
        self.lanes = [Lane(index, slot, shop) for index, slot in enumerate(slots)]
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lost, self._done = asyncio.Event(), asyncio.Event()
        self._told: tuple[ev.SlotInfo, ...] = ()
        self._shown = ""  # the devices as they are in our hash

    @property
    def worker_id(self) -> str:
        return self._shop.worker_id

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> Ending:
        """Work until `stop`, then until all is settled or handed back; `hurry` ends the wait. Raises GaveUp."""
        await self._register(stop)
        lanes = [asyncio.create_task(lane.run(), name=f"lane-{lane.index}") for lane in self.lanes]
        duties = [asyncio.create_task(self._beat(), name="heartbeat"), asyncio.create_task(self._read(), name="work")]
        try:
            await _first_of([*lanes, *duties], stop, self._lost)
            await (self._abandon(lanes) if self._lost.is_set() else self._drain(lanes, hurry))
        finally:
            self._done.set()
            await _cancelled([*lanes, *duties])
        return Ending.LOST if self._lost.is_set() else Ending.DRAINED

    async def _register(self, stop: asyncio.Event) -> None:
        host, self._told = self._config.host, self.slots
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
        }

        async def call() -> str:
            return await self._store.attempts.register(self._config.pool, event, fields)

        await until_answered(call, call, stop)
        log.info("worker_registered", worker=self._shop.worker_id, slots=len(self.lanes))

    @property
    def slots(self) -> tuple[ev.SlotInfo, ...]:
        """What a choice may use now; a slot in quarantine is not among it."""
        return tuple(slot_info(lane) for lane in self.lanes if not lane.slot.quarantined)

    def _devices(self) -> str:
        """Describe devices and slots for people; decisions are made from the log alone."""
        return orjson.dumps([lane.slot.device.describe() | lane.describe() for lane in self.lanes]).decode()

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
            await _wait(self._done, self._config.heartbeat_s)

    async def _beat_once(self) -> None:
        held = [(lane, key, lane.accepted(key)) for lane in self.lanes for key in lane.held]
        handled = list(self._shop.handled)[:ACKNOWLEDGED_PER_BEAT]
        devices = self._devices()
        beat = await self._store.attempts.heartbeat(
            self._config.pool,
            self._shop.worker_id,
            [key for _, key, _ in held],
            handled,
            devices if devices != self._shown else "",
        )
        if beat.word is Word.GONE:
            self._lost.set()
            return
        self._shown = devices
        self._shop.handled.difference_update(handled)
        self._obey(held, beat)
        if self.slots != self._told and not self._shop.desk.draining.is_set():
            await self._tell_slots(self.slots)

    async def _tell_slots(self, slots: tuple[ev.SlotInfo, ...]) -> None:
        event, write_id = (
            ev.WorkerChanged(worker_id=self._shop.worker_id, slots=slots),
            mint_token(random.getrandbits(80)),
        )
        await self._store.attempts.announce(self._config.pool, self._shop.worker_id, event, write_id)
        self._told = slots

    def _obey(self, held: Sequence[tuple[Lane, tuple[str, int], bool]], beat: Beat) -> None:
        for (lane, (job_id, fence), accepted), flag in zip(held, beat.held, strict=True):
            if flag == "c":
                self._cancel(job_id, fence)
            elif flag == "0" and accepted:  # else our start was still on its way
                lane.lose(job_id, fence)

    async def _read(self) -> None:
        reader, failures = self._store.work(self._config.pool, self._shop.worker_id), 0
        while not self._done.is_set():
            try:
                messages = await reader.read(block_ms=BLOCK_MS)
                failures = 0
            except StoreUnavailable:
                failures += 1
                await pause(failures, self._done, random.random())
                continue
            for message in messages:
                try:
                    await self._take(message, message.fields or {})
                except (ValueError, KeyError, TypeError) as error:
                    self._shop.handled.add(message.position)
                    log.error(
                        "work_entry_unreadable", position=message.position, detail=f"{type(error).__name__}: {error}"
                    )

    async def _take(self, message: Message, fields: Mapping[bytes, bytes]) -> None:
        """Obey one work entry; an offer is acknowledged by its start, everything else with the next heartbeat."""
        kind, data = fields.get(b"kind", b"").decode(), orjson.loads(fields.get(b"d", b"{}"))
        match kind:
            case "offer":
                await self._take_offer(read_offer(fields[b"d"]), message.position)
                return
            case "withdraw":
                for lane in self.lanes:
                    lane.withdraw(data["offerId"])
            case "cancel":
                self._cancel(data["jobId"], data["fence"])
            case _:
                log.warning("work_entry_unknown", kind=kind, position=message.position)
        self._shop.handled.add(message.position)

    async def _take_offer(self, offer: Offer, position: str) -> None:
        if offer.offer_id in self._seen:  # read again after a lost connection
            return
        self._seen[offer.offer_id] = None
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        lane = self.lanes[offer.slot] if offer.slot < len(self.lanes) else None
        if lane is None or lane.slot.quarantined or self._shop.desk.draining.is_set():
            self._shop.handled.add(position)
            await self._decline(offer, "draining" if self._shop.desk.draining.is_set() else "slot_unusable")
        else:
            lane.put_on_deck(offer, position)

    def _cancel(self, job_id: str, fence: int) -> None:
        if len(self._shop.cancels) > MOST_REMEMBERED:  # of starts that were never ours
            self._shop.cancels.intersection_update(key for lane in self.lanes for key in lane.held)
        self._shop.cancels.add((job_id, fence))
        for lane in self.lanes:
            lane.stop(job_id, fence, Stop.CANCEL)

    async def _decline(self, offer: Offer, reason: str) -> None:
        async def call() -> Reply:
            return await self._store.attempts.decline(self._config.pool, self._shop.worker_id, offer, reason)

        await until_answered(call, call, self._shop.desk.over)

    async def _drain(self, lanes: Sequence["asyncio.Task[None]"], hurry: asyncio.Event) -> None:
        """Let what runs end, hand back what does not, leave in order."""
        self._shop.desk.draining.set()
        log.info("worker_draining", worker=self._shop.worker_id)
        left = [entry for lane in self.lanes for entry in lane.close()]
        over = asyncio.create_task(self._give_up_after(hurry))
        try:
            await self._announce(ev.WorkerDraining(worker_id=self._shop.worker_id, reason="stopped"), "draining")
            for entry in left:
                await self._decline(entry.offer, "draining")
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
        await _wait(hurry, self._config.drain_s)
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


def slot_info(lane: Lane) -> ev.SlotInfo:
    """Describe a slot for the scheduler."""
    device, warm = lane.slot.device, lane.slot.warm_model
    models = (warm.reference,) if warm else ()
    return ev.SlotInfo(index=lane.index, device=device.name, kind=device.kind, bytes=device.bytes_total, models=models)


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
    waiting = asyncio.create_task(_wait(hurry, within_s))
    everything = asyncio.ensure_future(asyncio.wait(tasks))
    await asyncio.wait([waiting, everything], return_when=asyncio.FIRST_COMPLETED)
    await _cancelled([waiting, everything])
    return all(task.done() for task in tasks)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return


async def _cancelled(tasks: "Sequence[asyncio.Future[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

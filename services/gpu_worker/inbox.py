"""A worker's work stream: offers, withdrawals, cancels and commands, read for as long as the registration lives.

Promises: an entry that was read again after a lost connection is obeyed once; an offer that cannot be taken is
declined, not dropped; what is done with is acknowledged, an offer by its start, everything else by the next heartbeat.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import orjson
import structlog

from contracts.errors import StoreUnavailable
from contracts.store import Store
from contracts.store.attempts import Offer, read_offer
from contracts.store.log import Message, pause
from services.gpu_worker.commands import Commands
from services.gpu_worker.deck import SLOT_UNUSABLE, Shop, decline
from services.gpu_worker.lane import Lane
from services.gpu_worker.slots.outcome import Stop

MOST_REMEMBERED = 1_000
BLOCK_MS = 1_000
log = structlog.get_logger()


class Inbox:
    """Hands the entries of one work stream to the lanes."""

    def __init__(self, store: Store, shop: Shop, lanes: Sequence[Lane], commands: Commands) -> None:
        self._store, self._shop, self._lanes, self._commands = store, shop, lanes, commands
        self._seen: OrderedDict[str, None] = OrderedDict()

    async def run(self, done: asyncio.Event) -> None:
        """Read until `done`, through any loss of the store."""
        reader, failures = self._store.work(self._shop.pool, self._shop.worker_id), 0
        while not done.is_set():
            try:
                messages = await reader.read(block_ms=BLOCK_MS)
                failures = 0
            except StoreUnavailable:
                failures += 1
                await pause(failures, done, random.random())
                continue
            for message in messages:
                await self._take(message)
            await asyncio.sleep(0)  # the lanes start what they were given before the next read is sent

    def cancel(self, job_id: str, fence: int) -> None:
        """End an attempt wherever it is, also if its start has not been answered yet."""
        cancels = self._shop.cancels
        if len(cancels) > MOST_REMEMBERED:  # of starts that were never ours
            cancels.intersection_update(key for lane in self._lanes for key in lane.held)
        cancels.add((job_id, fence))
        for lane in self._lanes:
            lane.stop(job_id, fence, Stop.CANCEL)

    async def decline(self, offer: Offer, reason: str) -> None:
        """Give an offer back. Raises GaveUp."""
        await decline(self._shop, offer, reason)

    async def _take(self, message: Message) -> None:
        try:
            offered = await self._obey(message.fields or {}, message.position)
        except (ValueError, KeyError, TypeError) as error:  # of a newer version, or damaged
            offered = False
            log.error("work_entry_unreadable", position=message.position, detail=type(error).__name__)
        if not offered:
            self._shop.handled.add(message.position)

    async def _obey(self, fields: Mapping[bytes, bytes], position: str) -> bool:
        """Do what an entry says; returns whether it is an offer that a lane has now."""
        kind, data = fields.get(b"kind", b"").decode(), orjson.loads(fields.get(b"d", b"{}"))
        match kind:
            case "offer":
                return await self._take_offer(read_offer(fields[b"d"]), position)
            case "withdraw":
                for lane in self._lanes:
                    lane.withdraw(data["offerId"])
            case "cancel":
                self.cancel(data["jobId"], data["fence"])
            case "command":
                self._commands.obey(data)
            case _:
                log.warning("work_entry_unknown", kind=kind, position=position)
        return False

    async def _take_offer(self, offer: Offer, position: str) -> bool:
        if offer.offer_id in self._seen:
            return True
        self._seen[offer.offer_id] = None
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        lane = self._lanes[offer.slot] if offer.slot < len(self._lanes) else None
        if self._shop.desk.draining.is_set():
            await self.decline(offer, "draining")
        elif lane is None or lane.slot.quarantined:
            await self.decline(offer, SLOT_UNUSABLE)
        else:
            lane.put_on_deck(offer, position)
            return True
        return False

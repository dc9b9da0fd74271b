"""What comes next on a device: one child is brought into host memory, prepared, ahead of its job.

Promises: at most one waits there, and only for a model that a slot runs next; it loads as soon as there is room, unless
its job does so first, and it leaves when nobody wants it any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace

import structlog

from contracts.model_spec import ModelSpec
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.resident import Resident
from services.gpu_worker.residency.children import Children
from services.gpu_worker.residency.ledger import Holding, Load, Stage, Want, is_same

_GONE = (Stage.LEAVING, Stage.STUCK)
log = structlog.get_logger()


class Ahead:
    """See the module. `line`: those who need bytes that are not free, and it among them."""

    def __init__(
        self,
        children: Children,
        bounds: Bounds,
        line: asyncio.Lock,
        begin_load: Callable[[Load, int], Resident],
        load: Callable[[Resident], Awaitable[bool]],
    ) -> None:
        self.asked: list[Want] = []  # by passes that wait in line
        self._children, self._bounds, self._line = children, bounds, line
        self._begin_load, self._load = begin_load, load
        self._loop = asyncio.get_running_loop()
        self._wishes: dict[Hashable, list[Want]] = {}  # slot -> what it runs next

    def expect(self, slot: Hashable, wants: Sequence[Want]) -> None:
        """Note what a slot runs next, in order; the first that is not here is brought."""
        before = self._wishes.pop(slot, None)
        if wants:
            self._wishes[slot] = list(wants)
            self.fulfil()
        elif before:
            self._loop.call_later(self._bounds.host_s, self._drop_unwanted)

    def begin(self, slot: Hashable, want: Want) -> None:
        """Take a pass that begins off what its slot runs next."""
        wishes = self._wishes.get(slot)
        if wishes and want in wishes:
            wishes.remove(want)

    def fulfil(self) -> None:
        """Bring the first model that a slot needs next and that is not here into host memory: one for the device."""
        missing = [want for wants in self._wishes.values() for want in wants if not self._has(want.model)]
        if not missing or self._children.is_closed or any(self._is_wanted(each) for each in self._children.hosts):
            return
        self._drop_unwanted()
        first, most_bytes = missing[0], self._children.ledger.room_bytes
        try:
            holding = self._children.start(first.model)
        except OSError as error:  # the job itself will say so
            log.warning("child_not_prepared", model=first.model.reference, detail=error.strerror)
        else:
            room = first if first.bytes <= most_bytes else replace(first, bytes=most_bytes)
            self._children.spawn(self._bring(room, holding))

    async def _bring(self, want: Want, holding: Holding) -> None:
        """Load a prepared child as soon as there is room, unless its job does so first or comes no more."""
        resident = self._children[holding.id]
        if not await resident.prepare():
            return
        while holding.stage is Stage.HOST and not resident.is_gone and self._is_wanted(holding) and not want.alone:
            async with self._line:
                if await self._has_room(want, holding):
                    break
            await self._children.change()
        else:
            return
        await self._load(resident)

    async def _has_room(self, want: Want, holding: Holding) -> bool:
        """Begin to load a prepared child if there is room now, or is once idle ones have left."""
        for _ in range(2):
            decision = self._children.ledger.decide(want, self._loop.time())
            if holding.stage is not Stage.HOST or not isinstance(decision, Load) or decision.id != holding.id:
                return False
            if not decision.evict:
                self._begin_load(decision, holding.id)
                return True
            leaving = [self._children.ledger.holdings[number] for number in decision.evict]
            await self._children.evict(leaving, self._children[holding.id])
        return False

    def _has(self, model: ModelSpec) -> bool:
        return any(is_same(each.model, model) and each.stage not in _GONE for each in self._children.holdings)

    def _is_wanted(self, holding: Holding) -> bool:
        wanted = (want.model for wants in (self.asked, *self._wishes.values()) for want in wants)
        return holding.model in wanted

    def _drop_unwanted(self) -> None:
        """End children in host memory that no slot runs next."""
        unwanted = [each for each in self._children.hosts if not self._is_wanted(each)]
        if unwanted and not self._children.is_closed:
            self._children.spawn(self._children.evict(unwanted))

"""The memory of one device: whose turn it is to have room, who stays, who comes next.

Promises: what a child is given was free before, in the ledger and, where the device tells, in truth; whoever waits for
bytes is not overtaken by others who want bytes, too. An idle model leaves when its time is over. One child may wait in
host memory, prepared, for a job that comes next; it loads as soon as there is room.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import structlog

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.resident import Environment, Resident
from services.gpu_worker.residency.ahead import Ahead
from services.gpu_worker.residency.children import Children
from services.gpu_worker.residency.ledger import Ledger, Load, Stage, TooLarge, Use, Wait, Want

OWN = "_"  # models of ours, which no file can name: their name begins so
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pass does not get its model; `final`: it never will on this device."""

    reason: str
    final: bool


class DeviceMemory:
    """See the module. `free_bytes` is what the device itself says is free, None where it cannot tell."""

    def __init__(
        self,
        device: Device,
        bounds: Bounds,
        environment: Environment,
        *,
        reserve_bytes: int = 0,
        max_models: int = 4,
        free_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.device, self.bounds = device, bounds
        self.ledger = Ledger(device.bytes_total, reserve_bytes, max_models)
        self.children = Children(device, bounds, environment, self.ledger, free_bytes)
        self.loads = 0  # begun so far
        self.testing = asyncio.Lock()  # one self test at a time
        self._loop = asyncio.get_running_loop()
        self._line = asyncio.Lock()  # those who need bytes that are not free, in the order they came
        self._is_short = False  # the first in line waits for bytes: nobody else may take them
        self._doomed: set[int] = set()  # to be evicted as soon as they are idle
        self._timer: asyncio.TimerHandle | None = None
        self._ahead = Ahead(self.children, bounds, self._line, self._begin_load, self._load)

    @property
    def models(self) -> tuple[str, ...]:
        """The models a choice may count on, `name@version`, in order of their names."""
        stages = (Stage.LOADING, Stage.IDLE, Stage.BUSY)
        there = (each.model for each in self.children.holdings if each.stage in stages)
        return tuple(sorted({model.reference for model in there if not model.name.startswith(OWN)}))

    @property
    def has_stuck(self) -> bool:
        """Whether a process of the device cannot be ended."""
        return any(each.stage is Stage.STUCK for each in self.children.holdings)

    def is_warm(self, model: ModelSpec) -> bool:
        """Whether a pass of the model could begin at once."""
        return self.ledger.idle(model) is not None

    def reason(self, want: Want) -> str:
        """Say what the pass would wait for now."""
        decision = self.ledger.decide(want, self._loop.time())
        return decision.reason if isinstance(decision, Wait | TooLarge) else ""

    def set_foreign_bytes(self, foreign_bytes: int) -> None:
        """Note what other processes hold of the device."""
        if foreign_bytes != self.ledger.foreign_bytes:
            self.ledger.foreign_bytes = foreign_bytes
            self.children.tell()

    def at_once(self, slot: Hashable, want: Want) -> Resident | None:
        """Return the resident that runs the pass if it is there, idle, and takes nothing from who waits."""
        if self._is_short:
            return None
        decision = self.ledger.decide(want, self._loop.time())
        if not isinstance(decision, Use) or decision.evict:
            return None
        if self.children[decision.id].condemned:  # its end is near, and nobody has told us yet
            self.ledger.leave(self.ledger.holdings[decision.id])
            return None
        self._ahead.begin(slot, want)
        return self._use(decision)

    def ask(self, slot: Hashable, want: Want) -> "asyncio.Task[Resident | Refusal]":
        """Return the resident that runs the pass: ready, or still to be loaded by the caller in its `slice_bytes`.

        Whoever loads it says so by `loaded`, and gives it back by `release`. Raises OSError if no process can be
        started.
        """
        self._ahead.begin(slot, want)
        self._ahead.asked.append(want)
        asking = self.children.spawn(self._in_line(want))
        asking.add_done_callback(lambda _: self._ahead.asked.remove(want))
        return asking

    def loaded(self, resident: Resident) -> None:
        """Note that the model is loaded and its pass begins."""
        holding = self.ledger.holdings.get(resident.id)
        if holding is not None and holding.stage is Stage.LOADING:
            self.ledger.run(holding)
            self.children.tell()

    def put_back(self, resident: Resident) -> None:
        """Take a resident back that nobody needs any more; what was to be loaded is loaded for the next."""
        if resident.is_ready:
            self.release(resident, None)
        else:
            self.children.spawn(self._load(resident))

    def release(self, resident: Resident, used_bytes: int | None) -> None:
        """Take a resident back, with what it was seen to hold; one whose process is gone has been let go by then."""
        holding = self.ledger.holdings.get(resident.id)
        if holding is None:
            return
        if resident.stuck:
            self.ledger.stick(holding)
        elif resident.condemned:
            self.ledger.leave(holding)
        else:
            self.ledger.rest(holding, self.children.held_bytes(resident, used_bytes), self._loop.time())
            if holding.id in self._doomed:
                self._doomed.discard(holding.id)
                self.children.spawn(self.children.evict([holding]))
            if holding.model.keep_warm_s is not None:
                self._watch_expiry()
        self.children.tell()

    def expect(self, slot: Hashable, wants: Sequence[Want]) -> None:
        """Note what a slot runs next, in order; the first that is not here is brought into host memory."""
        self._ahead.expect(slot, wants)

    async def load_model(self, want: Want) -> Refusal | None:
        """Have a model resident before anybody asks for it; returns why not. Raises OSError."""
        if self.is_warm(want.model):
            return None
        admitted = await self.ask(None, want)
        if isinstance(admitted, Refusal):
            return admitted
        return None if await self._load(admitted) else Refusal("the model could not be loaded", final=True)

    async def evict_model(self, reference: str) -> bool:
        """Let a model leave, once it is idle; returns whether it was there. A pin does not hold it."""
        named = [each for each in self.children.holdings if reference in (each.model.name, each.model.reference)]
        self._doomed.update(each.id for each in named if each.stage in (Stage.LOADING, Stage.BUSY))
        await self.children.evict([each for each in named if each.stage in (Stage.IDLE, Stage.HOST)])
        return bool(named)

    async def empty(self) -> None:
        """Let all leave that do nothing, pinned or not, and wait until their bytes are back."""
        await self.children.evict([each for each in self.children.holdings if each.stage in (Stage.IDLE, Stage.HOST)])

    async def close(self) -> None:
        """End all children and wait until their memory is back."""
        if self._timer is not None:
            self._timer.cancel()
        await self.children.close()

    async def _in_line(self, want: Want) -> Resident | Refusal:
        async with self._line:
            try:
                return await self._in_turn(want)
            finally:
                self._is_short = False

    async def _in_turn(self, want: Want) -> Resident | Refusal:
        """Be the first in line until there is room."""
        while True:
            self.children.look_at_idle()
            decision = self.ledger.decide(want, self._loop.time())
            match decision:
                case Use(evict=()):
                    return self._use(decision)
                case Load(id=None):
                    self.children.start(want.model)  # it prepares while others leave
                case Load(id=int(number), evict=()):
                    return self._begin_load(decision, number)
                case Use() | Load():
                    self._is_short = True
                    comes = self.children[decision.id] if isinstance(decision, Load) and decision.id else None
                    await self.children.evict([self.ledger.holdings[number] for number in decision.evict], comes)
                case TooLarge():
                    return Refusal(decision.reason, final=True)
                case Wait():
                    self._is_short = decision.for_bytes
                    if not await self.children.change(None if decision.hopeful else self.bounds.room_s):
                        return Refusal(decision.reason, final=False)

    def _use(self, decision: Use) -> Resident:
        self.ledger.use(decision)
        self.children.confine_idle()
        resident = self.children[decision.id]
        resident.slice_bytes = decision.bytes
        return resident

    def _begin_load(self, decision: Load, number: int) -> Resident:
        self.ledger.load(decision)
        self.loads += 1
        self.children.confine_idle()
        resident = self.children[number]
        resident.slice_bytes = decision.bytes
        self._loop.call_soon(self._ahead.fulfil)
        return resident

    async def _load(self, resident: Resident) -> bool:
        """Load a model that no pass waits for yet."""
        loading = asyncio.ensure_future(resident.load(resident.slice_bytes))
        await asyncio.wait([loading], timeout=self.bounds.load_s)
        if not (loading.done() and loading.result()):
            loading.cancel()
            await resident.reap()
        self.release(resident, None)
        return resident.is_ready

    def _watch_expiry(self) -> None:
        """Be back when an idle model's time is over."""
        due_s = self.ledger.next_expiry_s()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_s != float("inf") and not self.children.is_closed:
            self._timer = self._loop.call_at(due_s, self._on_expiry)

    def _on_expiry(self) -> None:
        expired = self.ledger.expired(self._loop.time())
        if expired:
            self.children.spawn(self.children.evict(expired))
        self._watch_expiry()

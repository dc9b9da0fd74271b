"""The memory of one device: who is in it, who has to leave, who comes next.

Promises: what a child is given was free before, in the ledger and, where the device tells, in truth: an evicted child
is reaped and its bytes are seen to be back before another loads; whoever waits for bytes is not overtaken by those who
want bytes, too. An idle model leaves when its time is over. One child may wait in host memory, prepared, for a job that
comes next; it loads as soon as there is room.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.residency.ledger import Holding, Ledger, Load, Stage, TooLarge, Use, Wait, Want
from services.gpu_worker.slots.attempt import Bounds
from services.gpu_worker.slots.resident import Environment, Resident

_GRAIN_BYTES = 1 << 20  # an idle child keeps what it has, rounded up, and one more: its heartbeat needs a little
_POLL_S = 0.05
_GONE = (Stage.LEAVING, Stage.STUCK)
log = structlog.get_logger()
T = TypeVar("T")


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
        self._environment, self._free_bytes = environment, free_bytes
        self._loop = asyncio.get_running_loop()
        self._residents: dict[int, Resident] = {}  # by their ids in the ledger
        self._line = asyncio.Lock()  # those who need bytes that are not free, in the order they came
        self._is_short = False  # the first in line waits for bytes: nobody else may take them
        self._asked: list[Want] = []  # by those in line
        self._wishes: dict[Hashable, list[Want]] = {}  # slot -> what it runs next
        self._doomed: set[int] = set()  # to be evicted as soon as they are idle
        self.loads = 0  # begun so far
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def models(self) -> tuple[str, ...]:
        """The models a choice may count on, `name@version`, in order of their names."""
        stages = (Stage.LOADING, Stage.IDLE, Stage.BUSY)
        return tuple(sorted({each.model.reference for each in self._holdings if each.stage in stages}))

    @property
    def has_stuck(self) -> bool:
        """Whether a process of the device cannot be ended."""
        return any(each.stage is Stage.STUCK for each in self._holdings)

    @property
    def _holdings(self) -> Iterable[Holding]:
        return self.ledger.holdings.values()

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
            self._tell()

    def at_once(self, slot: Hashable, want: Want) -> Resident | None:
        """Return the resident that runs the pass if it is there, idle, and takes nothing from who waits."""
        if self._is_short or self.ledger.idle(want.model) is None:
            return None
        decision = self.ledger.decide(want, self._loop.time())
        if not isinstance(decision, Use) or decision.evict:
            return None
        if self._residents[decision.id].condemned:  # its end is near, and nobody has told us yet
            self.ledger.leave(self.ledger.holdings[decision.id])
            return None
        self._grant(slot, want)
        return self._use(decision)

    def ask(self, slot: Hashable, want: Want) -> "asyncio.Task[Resident | Refusal]":
        """Return the resident that runs the pass: ready, or still to be loaded by the caller in its `slice_bytes`.

        Whoever loads it says so by `loaded`, and gives it back by `release`. Raises OSError if no process can be
        started.
        """
        self._grant(slot, want)
        self._asked.append(want)
        asking = self._spawn(self._in_line(want))
        asking.add_done_callback(lambda _: self._asked.remove(want))
        return asking

    def loaded(self, resident: Resident) -> None:
        """Note that the model is loaded and its pass begins."""
        holding = self.ledger.holdings.get(resident.id)
        if holding is not None and holding.stage is Stage.LOADING:
            self.ledger.run(holding)
            self._tell()

    def put_back(self, resident: Resident) -> None:
        """Take a resident back that nobody needs any more; what was to be loaded is loaded for the next."""
        if resident.is_ready:
            self.release(resident, resident.process.memory.measure().used_bytes)
        else:
            self._spawn(self._load(resident))

    def release(self, resident: Resident, used_bytes: int | None) -> None:
        """Take a resident back; one whose process is gone has been let go by then."""
        holding = self.ledger.holdings.get(resident.id)
        if holding is None:
            return
        if resident.stuck:
            self.ledger.stick(holding)
        elif resident.condemned:
            self.ledger.leave(holding)
        else:
            self.ledger.rest(holding, used_bytes if used_bytes is None else _rounded(used_bytes), self._loop.time())
            if holding.id in self._doomed:
                self._spawn(self._evict([holding]))
            self._watch_expiry()
        self._tell()

    def expect(self, slot: Hashable, wants: Sequence[Want]) -> None:
        """Note what a slot runs next, in order; the first that is not here is brought into host memory."""
        before = self._wishes.pop(slot, None)
        if wants:
            self._wishes[slot] = list(wants)
            self._fulfil()
        elif before:
            self._loop.call_later(self.bounds.host_s, self._drop_unwanted)

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
        named = [each for each in self._holdings if reference in (each.model.name, each.model.reference)]
        self._doomed.update(each.id for each in named if each.stage in (Stage.LOADING, Stage.BUSY))
        await self._evict([each for each in named if each.stage in (Stage.IDLE, Stage.HOST)])
        return bool(named)

    async def empty(self) -> None:
        """Let all leave that do nothing, pinned or not, and wait until their bytes are back."""
        await self.children.evict([each for each in self.children.holdings if each.stage in (Stage.IDLE, Stage.HOST)])

    async def close(self) -> None:
        """End all children and wait until their memory is back."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(resident.close() for resident in list(self._residents.values())))

    def describe(self) -> list[dict[str, object]]:
        """Describe the children for people."""
        return [
            {
                "model": each.model.reference,
                "state": each.stage.value,
                "bytes": each.bytes,
                "pinned": each.pinned,
                "childPid": self._residents[each.id].pid,
            }
            for each in self._holdings
        ]

    async def _in_line(self, want: Want) -> Resident | Refusal:
        async with self._line:
            try:
                return await self._in_turn(want)
            finally:
                self._is_short = False

    async def _in_turn(self, want: Want) -> Resident | Refusal:
        """Be the first in line until there is room."""
        while True:
            self._look_at_idle()
            decision = self.ledger.decide(want, self._loop.time())
            match decision:
                case Use(evict=()):
                    return self._use(decision)
                case Load(id=None):
                    self._start(want.model)  # it prepares while others leave
                case Load(id=int(number), evict=()):
                    return self._begin_load(decision, number)
                case Use() | Load():
                    self._is_short = True
                    comes = self._residents[decision.id] if isinstance(decision, Load) and decision.id else None
                    await self._evict([self.ledger.holdings[number] for number in decision.evict], comes)
                case TooLarge():
                    return Refusal(decision.reason, final=True)
                case Wait():
                    self._is_short = decision.for_bytes
                    if not await self._change(None if decision.hopeful else self.bounds.room_s):
                        return Refusal(decision.reason, final=False)

    def _use(self, decision: Use) -> Resident:
        self.ledger.use(decision)
        self._confine_idle()
        resident = self._residents[decision.id]
        resident.slice_bytes = decision.bytes
        return resident

    def _begin_load(self, decision: Load, number: int) -> Resident:
        self.ledger.load(decision)
        self.loads += 1
        self._confine_idle()
        resident = self._residents[number]
        resident.slice_bytes = decision.bytes
        self._loop.call_soon(self._fulfil)
        return resident

    def _confine_idle(self) -> None:
        """Hold those who do nothing to what they have: the rest may be another's from now on."""
        for holding in self._holdings:
            if holding.stage is Stage.IDLE and self._residents[holding.id].slice_bytes != holding.bytes:
                self._residents[holding.id].confine(holding.bytes)

    def _look_at_idle(self) -> None:
        """Look again at what the idle hold: some give memory back a little after their pass, or are about to end."""
        for holding in self._holdings:
            resident = self._residents[holding.id]
            if holding.stage is Stage.IDLE and resident.condemned:
                self.ledger.leave(holding)
            elif holding.stage is Stage.IDLE:
                used_bytes = resident.process.memory.measure().used_bytes
                if used_bytes is not None:
                    holding.bytes = min(holding.bytes, _rounded(used_bytes))

    def _start(self, model: ModelSpec) -> Holding:
        resident = Resident(model, self.device, self.bounds, self._environment, self._on_gone)
        holding = self.ledger.host(model)
        resident.id = holding.id
        self._residents[holding.id] = resident
        return holding

    def _fulfil(self) -> None:
        """Bring the first model that a slot needs next and that is not here into host memory: one for the device."""
        missing = [want for wants in self._wishes.values() for want in wants if not self._has(want.model)]
        if not missing or self._closed or any(self._is_wanted(each) for each in self._hosts()):
            return
        self._drop_unwanted()
        try:
            holding = self._start(missing[0].model)
        except OSError as error:  # the job itself will say so
            log.warning("child_not_prepared", model=missing[0].model.reference, detail=error.strerror)
        else:
            self._spawn(self._bring(missing[0], holding))

    async def _bring(self, want: Want, holding: Holding) -> None:
        """Load a prepared child as soon as there is room, unless its job does so first or comes no more."""
        resident = self._residents[holding.id]
        if not await resident.prepare():
            return
        while holding.stage is Stage.HOST and not resident.is_gone and self._is_wanted(holding) and not want.alone:
            async with self._line:
                if await self._has_room(want, holding):
                    break
            await self._change(None)
        else:
            return
        await self._load(resident)

    async def _has_room(self, want: Want, holding: Holding) -> bool:
        """Begin to load a prepared child if there is room now, or is once idle ones have left."""
        for _ in range(2):
            decision = self.ledger.decide(want, self._loop.time())
            if holding.stage is not Stage.HOST or not isinstance(decision, Load) or decision.id != holding.id:
                return False
            if not decision.evict:
                self._begin_load(decision, holding.id)
                return True
            leaving = [self.ledger.holdings[number] for number in decision.evict]
            await self._evict(leaving, self._residents[holding.id])
        return False

    async def _load(self, resident: Resident) -> bool:
        """Load a model that no pass waits for yet."""
        loading = asyncio.ensure_future(resident.load(resident.slice_bytes))
        await asyncio.wait([loading], timeout=self.bounds.load_s)
        if not (loading.done() and loading.result()):
            loading.cancel()
            await resident.reap()
        self.release(resident, resident.process.memory.measure().used_bytes)
        return resident.is_ready

    async def _evict(self, leaving: Sequence[Holding], comes: Resident | None = None) -> None:
        """Let them leave and wait until their bytes are back."""
        for holding in leaving:
            self.ledger.leave(holding)
            if comes is not None and holding.bytes:
                comes.evicted.append(holding.model.reference)
        if leaving:
            self._tell()
            await asyncio.wait([self._spawn(self._close_one(holding)) for holding in leaving])

    async def _close_one(self, holding: Holding) -> None:
        resident = self._residents[holding.id]
        await resident.close()
        if resident.stuck:
            log.error("child_survived_kill", device=self.device.name, model=holding.model.reference, pid=resident.pid)
            self.ledger.stick(holding)
            self._tell()
        while holding.id in self._residents and not resident.stuck:  # its bytes are on their way back
            await self._change(None)

    def _on_gone(self, resident: Resident) -> None:
        holding = self.ledger.holdings.get(resident.id)
        if holding is None:
            return
        if self._free_bytes() is None or not holding.bytes or self._closed:
            self._let_go(holding)
        else:
            self.ledger.leave(holding)
            self._spawn(self._see_bytes_back(holding))

    async def _see_bytes_back(self, holding: Holding) -> None:
        """Wait until as much is free as the others leave: the driver may lag behind the end of a process."""
        ends_s = self._loop.time() + self.bounds.back_s
        while (self._free_bytes() or 0) < self.ledger.free_bytes + holding.bytes:
            if self._loop.time() > ends_s:
                log.warning("device_bytes_not_back", device=self.device.name, bytes=holding.bytes)
                break
            await asyncio.sleep(_POLL_S)
        self._let_go(holding)

    def _let_go(self, holding: Holding) -> None:
        self.ledger.release(holding)
        self._residents.pop(holding.id, None)
        self._doomed.discard(holding.id)
        self._tell()

    def _grant(self, slot: Hashable, want: Want) -> None:
        """Take a pass that begins off what its slot runs next."""
        wishes = self._wishes.get(slot)
        if wishes and want in wishes:
            wishes.remove(want)

    def _hosts(self) -> list[Holding]:
        return [each for each in self._holdings if each.stage is Stage.HOST]

    def _has(self, model: ModelSpec) -> bool:
        return any(each.model == model and each.stage not in _GONE for each in self._holdings)

    def _is_wanted(self, holding: Holding) -> bool:
        wanted = (want.model for wants in (self._asked, *self._wishes.values()) for want in wants)
        return holding.model in wanted

    def _drop_unwanted(self) -> None:
        """End children in host memory that no slot runs next."""
        unwanted = [each for each in self._hosts() if not self._is_wanted(each)]
        if unwanted and not self._closed:
            self._spawn(self._evict(unwanted))

    def _watch_expiry(self) -> None:
        """Be back when an idle model's time is over."""
        due_s = self.ledger.next_expiry_s()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_s != float("inf") and not self._closed:
            self._timer = self._loop.call_at(due_s, self._on_expiry)

    def _on_expiry(self) -> None:
        expired = self.ledger.expired(self._loop.time())
        if expired:
            self._spawn(self._evict(expired))
        self._watch_expiry()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self, within_s: float | None) -> bool:
        """Wait for any change of the books; False if there was none in time."""
        try:
            await asyncio.wait_for(self._changed.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def _spawn(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _rounded(used_bytes: int) -> int:
    return -(-used_bytes // _GRAIN_BYTES) * _GRAIN_BYTES + _GRAIN_BYTES

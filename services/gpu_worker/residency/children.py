"""The processes of one device, each with its place in the ledger: how they begin, how they leave, what they hold.

Promises: the bytes of a process are taken back only when it is reaped and, where the device tells, when they are seen
to be free; one that cannot be ended keeps them. Whoever waits for a change of the books hears of each.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeVar

import structlog

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.resident import Environment, Resident
from services.gpu_worker.residency.ledger import Holding, Ledger, Stage
from services.gpu_worker.residency.sharing import Sharing

_GRAIN_BYTES = 1 << 20  # an idle child keeps what it has, rounded up, and one more: its heartbeat needs a little
_POLL_S = 0.05
log = structlog.get_logger()
T = TypeVar("T")


class Children:
    """See the module. `free_bytes` is what the device itself says is free, None where it cannot tell."""

    def __init__(
        self,
        device: Device,
        bounds: Bounds,
        environment: Environment,
        ledger: Ledger,
        free_bytes: Callable[[], int | None],
    ) -> None:
        self.ledger = ledger
        self.is_closed = False
        self._device, self._bounds, self._environment = device, bounds, environment
        self._free_bytes = free_bytes
        self._loop = asyncio.get_running_loop()
        self._residents: dict[int, Resident] = {}  # by their ids in the ledger
        self._sharing = Sharing(device.bytes_total, self._busy, lambda: list(self._residents.values()))
        self._changed, self._waiting = asyncio.Event(), 0
        self._tasks: set[asyncio.Task[object]] = set()

    def __getitem__(self, number: int) -> Resident:
        return self._residents[number]

    @property
    def holdings(self) -> Iterable[Holding]:
        return self.ledger.holdings.values()

    @property
    def residents(self) -> Iterable[Resident]:
        """Their processes."""
        return self._residents.values()

    @property
    def hosts(self) -> list[Holding]:
        """Those in host memory, that nobody loads yet."""
        return [each for each in self.holdings if each.stage is Stage.HOST]

    def start(self, model: ModelSpec) -> Holding:
        """Start a child: it imports and prepares. Raises OSError."""
        resident = Resident(model, self._device, self._bounds, self._environment, self._on_gone)
        holding = self.ledger.host(model)
        resident.id = holding.id
        self._residents[holding.id] = resident
        return holding

    def evict(self, leaving: Sequence[Holding], comes: Resident | None = None) -> Coroutine[object, object, None]:
        """Let them leave, for the one that comes; what is returned waits until their bytes are back.

        From this call on nobody is given one of them, also if the wait begins later: it may belong to a task.
        """
        for holding in leaving:
            self.ledger.leave(holding)
            if comes is not None and holding.bytes:
                comes.evicted.append(holding.model.reference)
        if leaving:
            self.tell()
        return _all([self.spawn(self._close_one(holding)) for holding in leaving])

    async def close(self) -> None:
        """End all and wait until their memory is back."""
        self.is_closed = True
        self._sharing.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(resident.close() for resident in list(self._residents.values())))

    def describe(self) -> list[dict[str, object]]:
        """Describe them for people."""
        return [
            {
                "model": each.model.reference,
                "state": each.stage.value,
                "bytes": each.bytes,
                "pinned": each.pinned,
                "childPid": self._residents[each.id].pid,
            }
            for each in self.holdings
        ]

    def confine_idle(self) -> None:
        """Hold those who do nothing to what they have: the rest may be another's from now on."""
        for holding in self.holdings:
            if holding.stage is Stage.IDLE and self._residents[holding.id].slice_bytes != holding.bytes:
                self._residents[holding.id].confine(holding.bytes)
        if self._device.kind == "sim" and len(self._busy()) > 1:
            self._sharing.begin()

    def _busy(self) -> list[Resident]:
        return [self._residents[each.id] for each in self.holdings if each.stage in (Stage.LOADING, Stage.BUSY)]

    def look_at_idle(self) -> None:
        """Look again at what the idle hold: some give memory back a little after their pass, or are about to end."""
        for holding in self.holdings:
            if holding.stage is Stage.IDLE and self._residents[holding.id].condemned:
                self.ledger.leave(holding)
            elif holding.stage is Stage.IDLE:
                held_bytes = self.held_bytes(self._residents[holding.id])
                holding.bytes = holding.bytes if held_bytes is None else min(holding.bytes, held_bytes)

    @staticmethod
    def held_bytes(resident: Resident, used_bytes: int | None = None) -> int | None:
        """Return what an idle child keeps; None where it cannot be measured."""
        if used_bytes is None and resident.is_ready:
            used_bytes = resident.process.memory.measure().used_bytes
        return None if used_bytes is None else -(-used_bytes // _GRAIN_BYTES) * _GRAIN_BYTES + _GRAIN_BYTES

    def tell(self) -> None:
        """Wake those who wait for a change."""
        if self._waiting:
            self._changed.set()
            self._changed = asyncio.Event()

    async def change(self, within_s: float | None = None) -> bool:
        """Wait for any change of the books; False if there was none in time."""
        self._waiting += 1
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        return True

    def spawn(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Let something go on that ends with the device."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _close_one(self, holding: Holding) -> None:
        resident = self._residents[holding.id]
        await resident.close()
        if resident.stuck:
            log.error("child_survived_kill", device=self._device.name, model=holding.model.reference, pid=resident.pid)
            self.ledger.stick(holding)
            self.tell()
        while holding.id in self._residents and not resident.stuck:  # its bytes are on their way back
            await self.change()

    def _on_gone(self, resident: Resident) -> None:
        holding = self.ledger.holdings.get(resident.id)
        if holding is None:
            return
        if self._free_bytes() is None or not holding.bytes or self.is_closed:
            self._let_go(holding)
        else:
            self.ledger.leave(holding)
            self.spawn(self._see_bytes_back(holding))

    async def _see_bytes_back(self, holding: Holding) -> None:
        """Wait until as much is free as the others leave: the driver may lag behind the end of a process."""
        ends_s = self._loop.time() + self._bounds.back_s
        while (self._free_bytes() or 0) < self.ledger.free_bytes + holding.bytes:
            if self._loop.time() > ends_s:
                log.warning("device_bytes_not_back", device=self._device.name, bytes=holding.bytes)
                break
            await asyncio.sleep(_POLL_S)
        self._let_go(holding)

    def _let_go(self, holding: Holding) -> None:
        self.ledger.release(holding)
        self._residents.pop(holding.id, None)
        self.tell()


async def _all(tasks: Sequence["asyncio.Task[None]"]) -> None:
    if tasks:
        await asyncio.wait(tasks)

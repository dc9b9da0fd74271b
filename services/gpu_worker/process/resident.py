"""A child with one model: from the start of its process until that is reaped.

Promises: it is spoken to by one user at a time, who hears all it says and when it is gone; what was signalled or broke
the protocol is condemned, and never used again; once it is gone its process group is. Does not promise to get rid of a
process that even SIGKILL cannot end: that one is `stuck`, and its memory nobody's.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from contracts.model_spec import ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.process.bounds import Bounds
from services.gpu_worker.process.child_process import ChildProcess, ChildSpec, spawn
from services.gpu_worker.process.encoding import encode_close, encode_load, encode_slice
from services.gpu_worker.process.frames import (
    BatchOver,
    End,
    Frame,
    Heartbeat,
    LoadFailed,
    Prepared,
    ProtocolError,
    Ready,
    Telemetry,
)
from services.gpu_worker.process.gpu_memory import GpuMemory
from services.gpu_worker.process.memory import ProcessMemory, oom_kills
from services.gpu_worker.process.stillness import LOOKS, Stillness

STANDS_STILL = "its memory is at the limit and the load does nothing any more"
Environment = Callable[[Mapping[str, str]], dict[str, str]]


class User(Protocol):
    """Whoever loads the model for a pass and runs it."""

    def on_frame(self, frame: Telemetry | End | BatchOver) -> None: ...
    def on_violation(self) -> None: ...
    def on_gone(self, exit_status: int) -> None: ...


class Resident:
    """See the module. Raises OSError if no process can be started; `on_gone` is called once it is reaped."""

    def __init__(
        self,
        model: ModelSpec,
        device: Device,
        bounds: Bounds,
        environment: Environment,
        on_gone: Callable[["Resident"], None],
    ) -> None:
        self.model, self.device = model, device
        self.id = 0  # in the books of its device
        self.condemned = self.stuck = False
        self.ooms = 0  # passes that ran out of memory in it
        self.user: User | None = None
        self.load_failed: LoadFailed | None = None
        self.slice_bytes = 0  # what it may have of the device now
        self._told = (0, 0)  # slice and context, as the child knows them
        self.load_peak_bytes: int | None = None  # the most it held while it loaded
        self.evicted: list[str] = []  # models that left to make room for this one
        self.heard_s = 0.0  # loop time of its last frame: a metric
        self.oom_kills = oom_kills()  # on this host, before it began
        self._bounds, self._on_gone = bounds, on_gone
        self._loop = asyncio.get_running_loop()
        self._prepared: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        lock = (device.lock_fd,) if device.lock_fd >= 0 else ()
        own = environment({**model.env, **device.environment})
        memory = partial(GpuMemory, gauge=device.gauge) if device.is_gpu else ProcessMemory
        spec = ChildSpec(model.entry, model.interpreter, own, lock, memory)
        self.process: ChildProcess = spawn(spec, self._hear, self._on_violation)
        self.process.gone.add_done_callback(lambda gone: self._end(gone.result()))
        self._connected = asyncio.ensure_future(self.process.connect())
        self._connected.add_done_callback(self._on_connected)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_gone(self) -> bool:
        return self.process.gone.done()

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded and the child may be asked to run."""
        return self._ready.done() and not self.condemned and not self.is_gone

    async def prepare(self) -> bool:
        """Wait until its imports and prepare() are over; False if it ended instead."""
        await first_of(self._prepared, self.process.gone)
        return self._prepared.done() and not self.is_gone

    async def load(self, slice_bytes: int) -> bool:
        """Load the model in a slice of the device; False if it ended instead. Call it once."""
        if not await self.prepare():
            return False
        self.process.memory.arm()
        self.confine(slice_bytes)
        self.process.memory.reset_peak()
        memory, result_bytes = self.process.memory, self._bounds.result_bytes
        context_bytes = memory.context_bytes if isinstance(memory, GpuMemory) else None
        self.process.send(encode_load(self.device.kind, self.device.index, slice_bytes, result_bytes, context_bytes))
        await self._loaded()
        if self.is_ready:
            self.process.memory.limit_files(self._bounds.scratch_bytes)  # not before: what load() fetches may be larger
        return self.is_ready

    async def _loaded(self) -> None:
        """Wait until it is ready or gone; one that stands still at the end of its slice is ended."""
        stillness, look_s = Stillness(self._bounds.still_s), self._bounds.still_s / LOOKS
        while not self._ready.done() and not self.is_gone:
            await first_of(self._ready, self.process.gone, within_s=look_s)
            if not self.condemned and stillness.is_over(self.process.memory.doing(), self._loop.time()):
                self.load_failed = LoadFailed("out_of_memory", STANDS_STILL)
                self.signal(signal.SIGKILL)

    def confine(self, slice_bytes: int) -> None:
        """Let it have so much of the device from now on."""
        self.slice_bytes, memory = slice_bytes, self.process.memory
        memory.limit(slice_bytes)
        if isinstance(memory, GpuMemory) and self._told != (now := (slice_bytes, memory.context_bytes)):
            self._told = now
            if self._ready.done():  # before, `load` tells
                self.process.send(encode_slice(*now))

    def signal(self, number: signal.Signals) -> None:
        """Signal the process group; it is not used again."""
        self.condemned = True
        self.process.signal_group(number)

    async def close(self) -> None:
        """End it, politely if it has nothing to do, and wait until its memory is back."""
        if self.is_ready and self.user is None:
            self.condemned = True
            self.process.send(encode_close())
            await asyncio.wait([self.process.gone], timeout=self._bounds.cancel_grace_s)
        await self.reap()

    async def reap(self) -> None:
        """Kill what is left of it and wait until its memory is certainly back."""
        self.signal(signal.SIGKILL)
        await asyncio.wait([self.process.gone], timeout=self._bounds.reap_s)
        self.stuck = not self.is_gone

    def _hear(self, frame: Frame) -> None:
        self.heard_s = self._loop.time()
        match frame:
            case Heartbeat():
                pass
            case Prepared():
                _settle(self._prepared)
            case Ready():
                if frame.host:
                    self.process.memory.let_go(frame.host.get("data", 0), frame.host.get("resident", 0))
                    self.process.memory.limit(self.slice_bytes)
                # What a process takes by itself is known from here on, too.
                self.load_peak_bytes = self.process.memory.measure(frame.allocator).peak_bytes
                _settle(self._ready)
            case LoadFailed():  # its exit follows
                self.load_failed = frame
            case _:
                if self.user is not None:
                    self.user.on_frame(frame)

    def _on_connected(self, connected: "asyncio.Future[None]") -> None:
        if not connected.cancelled() and connected.exception() is not None:  # nobody would ever hear it
            self.signal(signal.SIGKILL)

    def _on_violation(self, error: ProtocolError) -> None:
        self.condemned = True
        if self.user is not None:
            self.user.on_violation()
        else:
            self.process.signal_group(signal.SIGKILL)

    def _end(self, exit_status: int) -> None:
        self.condemned, self.stuck = True, False
        self._on_gone(self)
        if self.user is not None:
            self.user.on_gone(exit_status)


async def first_of(*futures: "asyncio.Future[Any]", within_s: float | None = None) -> None:
    """Wait until one of them is done, or for so long."""
    await asyncio.wait(futures, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)

"""What a slot is asked to do: the accepted start, who listens, and the bounds of a slot."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from contracts.model_spec import ModelSpec
from services.gpu_worker.slots.frames import Telemetry
from services.gpu_worker.slots.outcome import Outcome, Stop
from services.gpu_worker.slots.watchdog import Limits


@dataclass(frozen=True, slots=True)
class Attempt:
    """One accepted start."""

    job: str
    fence: int
    model: ModelSpec  # equal ones share a warm child
    inputs: Mapping[str, Any]
    budget_bytes: int  # 0: nobody has measured what it needs, so it gets the whole device
    scratch: Path  # exists and is nobody else's
    log_path: Path
    limits: Limits
    alone: bool = False  # in a fresh child that has the whole device


@dataclass(frozen=True, slots=True)
class Loaded:
    """What it took to have the model: how long the attempt waited, what the model holds, who left for it."""

    ms: float
    bytes: int | None
    evicted: tuple[str, ...]


class Listener(Protocol):
    """Whoever wants to know how an attempt goes; called on the loop, in order, never after its end."""

    def on_load_started(self) -> None: ...
    def on_loaded(self, loaded: Loaded) -> None: ...
    def on_telemetry(self, frame: Telemetry) -> None: ...


class Member:
    """An attempt that is run, by itself or with others of its batch."""

    __slots__ = ("attempt", "listener", "outcome", "stop")

    def __init__(self, attempt: Attempt, listener: Listener) -> None:
        self.attempt, self.listener = attempt, listener
        self.stop: Stop | None = None  # why this one is stopped
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long each step may take before the next one, and how large a result may be."""

    cancel_grace_s: float = 1.0
    term_grace_s: float = 0.5
    reap_s: float = 10.0
    load_s: float = 600.0
    back_s: float = 5.0  # for the bytes of a process that is gone to be free again
    room_s: float = 30.0  # that an attempt waits for room which nothing of ours will make
    host_s: float = 60.0  # that a prepared child stays which nobody wants any more
    result_bytes: int = 64 << 10
    scratch_bytes: int = 1 << 30  # that one file may have, of author code and of its helpers

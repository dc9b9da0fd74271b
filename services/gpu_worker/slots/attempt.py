"""What a slot is asked to do: the accepted start, and who listens."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from contracts.model_spec import ModelSpec
from services.gpu_worker.process.frames import Telemetry
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
    """What it took to have the model: how long the attempt waited, what the model holds, who left for it.

    `peak_bytes`: the most it held while it was loaded.
    """

    ms: float
    bytes: int | None
    evicted: tuple[str, ...]
    peak_bytes: int | None = None


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

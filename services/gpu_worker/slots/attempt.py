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
    budget_bytes: int
    scratch: Path  # exists and is nobody else's
    log_path: Path
    limits: Limits


class Listener(Protocol):
    """Whoever wants to know how an attempt goes; called on the loop, in order, never after its end."""

    def on_load_started(self) -> None: ...
    def on_loaded(self, ms: float) -> None: ...
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
    result_bytes: int = 64 << 10

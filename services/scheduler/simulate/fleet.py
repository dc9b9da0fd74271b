"""The simulated devices: one slot each, a deck of one, models that stay until others need their room. Pure."""

from collections import deque
from dataclasses import dataclass, field

from services.scheduler.simulate.arrivals import Ran


@dataclass(frozen=True, slots=True)
class Device:
    """A device as a simulation is told. `models`: how many stay loaded, as far as their bytes fit; 1 is a worker of
    today, whose slot holds one model.
    """

    bytes: int = 0  # 0: memory is not accounted for
    models: int = 1


@dataclass(slots=True)
class SimSlot:
    """The slot of a device. `resident`: models, the least recently used first."""

    index: int
    device: Device
    running: Ran | None = None
    deck: deque[tuple[str, Ran]] = field(default_factory=deque)  # offer, job
    resident: dict[str, int] = field(default_factory=dict)  # model -> bytes
    free_at_ms: int = 0

    def admit(self, job: Ran) -> bool:
        """Make the job's model resident; returns whether it was already."""
        model = job.arrival.model
        warm = self.resident.pop(model, None) is not None
        self.resident[model] = job.arrival.bytes
        while len(self.resident) > self.device.models or self._is_over():
            del self.resident[next(iter(self.resident))]
        return warm

    def _is_over(self) -> bool:
        return bool(self.device.bytes) and len(self.resident) > 1 and sum(self.resident.values()) > self.device.bytes

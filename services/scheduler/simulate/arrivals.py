"""What a simulation is given: who asks when for what, and how long it really takes. Pure."""

from dataclasses import dataclass

from contracts.events import Priority, Tier


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it was recorded or made up. `run_ms` and `load_ms`: what running and loading its model really take."""

    job_id: str
    at_ms: int
    tenant_id: str
    model: str
    run_ms: int
    load_ms: int
    tier: Tier = "standard"
    user: str = ""
    bucket: str = ""
    priority: Priority = "normal"
    bytes: int = 0  # of weights and work together
    start_by_ms: int | None = None
    resources: tuple[tuple[str, int], ...] = ()  # external limits and the tokens that a start takes


@dataclass(slots=True)
class Ran:
    """What became of a job. None: not yet, when the simulation ended. `load_ms` 0: the model was there."""

    arrival: Arrival
    start_ms: int | None = None
    end_ms: int | None = None
    load_ms: int = 0
    slot: int = -1
    expired: bool = False

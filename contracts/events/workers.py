"""Workers and the scheduler itself."""

from typing import ClassVar

from contracts.events.root import Event, SlotInfo


class WorkerRegistered(Event):
    """worker: a supervisor is up; its id is new at every boot."""

    TYPE: ClassVar[str] = "worker.registered"
    worker_id: str
    host: str
    pid: int
    slots: tuple[SlotInfo, ...]
    models: tuple[str, ...] = ()
    version: str = ""


class WorkerChanged(Event):
    """worker: what a choice may use has changed."""

    TYPE: ClassVar[str] = "worker.changed"
    worker_id: str
    slots: tuple[SlotInfo, ...]


class WorkerDraining(Event):
    """worker: takes nothing new."""

    TYPE: ClassVar[str] = "worker.draining"
    worker_id: str
    reason: str = ""


class WorkerDrained(Event):
    """worker: holds nothing and is gone."""

    TYPE: ClassVar[str] = "worker.drained"
    worker_id: str


class WorkerLost(Event):
    """scheduler: its heartbeat stood still for a whole lease; everything it held is given to others."""

    TYPE: ClassVar[str] = "worker.lost"
    worker_id: str
    silent_ms: int


class PolicyApplied(Event):
    """scheduler: the leader copies the configuration it will use from now on into its own log."""

    TYPE: ClassVar[str] = "policy.applied"
    position: str  # in the configuration log
    weights: dict[str, float] = {}


class SchedulerMismatch(Event):
    """scheduler: a decision was refused although the state is folded; the job leaves choice until repaired.

    Where the worker's guard refused, that slot leaves choice, and the job goes elsewhere.
    """

    TYPE: ClassVar[str] = "scheduler.mismatch"
    job_id: str
    reason: str
    worker_id: str | None = None
    slot: int | None = None

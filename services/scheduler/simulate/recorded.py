"""What a log recorded, folded into what a simulation is given: arrivals, the fleet, the policy. Pure.

Promises: a job is as long as its last completed attempt was; what was never measured takes the median of its model and
bucket, else of all. A job that was cancelled while it waited needed no device and is left out. What the leader was told
(policy, weights, caps, budgets, pauses, external limits) holds from the moment it was told. A provider's 429, what
others use of a limit, what was used of a budget before the range, batches and failed attempts play no part.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median_low

from contracts import events as ev
from contracts.policy import SchedulingPolicy
from contracts.positions import entry_key, entry_ms
from contracts.wire import Entry
from services.scheduler.simulate.arrivals import Arrival
from services.scheduler.simulate.changes import Change, from_the_start
from services.scheduler.simulate.fleet import Device

Bound = tuple[int, float]  # ms and sequence of a position
ALL: tuple[Bound, Bound] = ((0, 0), (1 << 62, 0))
_NO_MS = 0  # nothing of the kind was measured anywhere


@dataclass(slots=True)
class _Job:
    at_ms: int
    created: ev.JobCreated
    priority: ev.Priority
    load_ms: int | None = None  # of the attempt under way
    device_ms: int | None = None
    measured: tuple[int, int | None] | None = None  # run, load (None: was warm) of the last completed attempt
    left: bool = False


@dataclass(slots=True)
class Recorded:
    """The fold; feed it a log from its beginning, beyond the range too: what began inside may end behind it.

    The fleet is the largest inside the range; what the leader was told counts to the end of the log, so that a pause
    which outlasts the range ends.
    """

    begin: Bound = ALL[0]
    end: Bound = ALL[1]
    fleet: tuple[Device, ...] = ()
    _policy: SchedulingPolicy = SchedulingPolicy()
    _told: list[tuple[int, ev.PolicyApplied]] = field(default_factory=list)  # wall time
    _tiers: dict[str, ev.Tier] = field(default_factory=dict)
    _workers: dict[str, tuple[ev.SlotInfo, ...]] = field(default_factory=dict)
    _jobs: dict[str, _Job] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """Take the next entry. Raises Corrupt, and ValueError for a policy out of bounds."""
        event, key = entry.event(), entry_key(entry.position)
        if isinstance(event, ev.JobCreated):
            if self.begin <= key <= self.end:
                self._jobs[entry.subject] = _Job(entry_ms(entry.position), event, event.priority)
        elif event is not None and entry.subject in self._jobs:
            _tell(self._jobs[entry.subject], event)
        elif isinstance(event, ev.PolicyApplied):
            self._hear(event, entry_ms(entry.position))
        elif event is not None and key <= self.end:
            self._configure(event, key)

    def arrivals(self) -> list[Arrival]:
        """Return the jobs of the range; the first comes at 0."""
        jobs = {job_id: job for job_id, job in self._jobs.items() if not job.left}
        run_of = _Typical((_kind(job), job.measured[0]) for job in jobs.values() if job.measured)
        loads = ((job.created.model, job.measured[1]) for job in jobs.values() if job.measured)
        load_of = _Typical((model, ms) for model, ms in loads if ms is not None)
        begin_ms = self.begin_ms()
        return [self._arrival(job_id, job, begin_ms, run_of, load_of) for job_id, job in jobs.items()]

    def begin_ms(self) -> int:
        """Return the wall time of the clock's 0: when the first job came."""
        return min((job.at_ms for job in self._jobs.values() if not job.left), default=0)

    def changes(self) -> list[Change]:
        """Return what the leader was told; what was told before the first job came holds from 0 on."""
        zero_ms, tenants = self.begin_ms(), {job.created.tenant_id for job in self._jobs.values()}
        plain = from_the_start(dict.fromkeys(tenants, "standard"), SchedulingPolicy())
        return [plain, *((max(0, at_ms - zero_ms), applied) for at_ms, applied in self._told)]

    def _hear(self, event: ev.PolicyApplied, at_ms: int) -> None:
        if event.policy is not None:
            self._policy = self._policy.changed(event.policy)  # refuses what is out of bounds while its place is known
        self._tiers |= {tenant: rule.tier for tenant, rule in (event.tenants or {}).items()}
        self._told.append((at_ms, event))

    def _tier(self, tenant: str) -> ev.Tier:
        return self._tiers.get(tenant, "standard")

    def _configure(self, event: ev.Event, key: Bound) -> None:
        if isinstance(event, ev.WorkerRegistered):
            self._workers[event.worker_id] = event.slots
        elif isinstance(event, ev.WorkerLost | ev.WorkerDrained):
            self._workers.pop(event.worker_id, None)
        # by name: a supervisor that was killed is succeeded by another before it counts as lost
        slots = {(slot.device, slot.index): slot for found in self._workers.values() for slot in found}
        present = tuple(Device(bytes=slot.bytes) for slot in slots.values())
        if key <= self.begin or len(present) > len(self.fleet):  # before the range: whatever is there when it begins
            self.fleet = present

    def _arrival(
        self, job_id: str, job: _Job, zero_ms: int, run_of: Callable[[str], int], load_of: Callable[[str], int]
    ) -> Arrival:  # fmt: skip
        made = job.created
        run_ms, load_ms = job.measured or (run_of(_kind(job)), None)
        return Arrival(
            job_id, job.at_ms - zero_ms, made.tenant_id, made.model, run_ms,
            load_of(made.model) if load_ms is None else load_ms, self._tier(made.tenant_id), made.user_digest or "",
            made.bucket or "", job.priority, made.vram_bytes, made.start_by_ms, tuple((made.resources or {}).items()),
        )  # fmt: skip


def _tell(job: _Job, event: ev.Event) -> None:
    match event:
        case ev.JobScheduled():
            job.at_ms = max(job.at_ms, event.run_at_ms)
        case ev.JobPriorityChanged():
            job.priority = event.priority
        case ev.JobStarted():
            job.load_ms = job.device_ms = None
        case ev.ModelLoadCompleted():
            job.load_ms = event.ms
        case ev.JobDeviceReleased():
            job.device_ms = event.gpu_ms
        case ev.JobCompleted() if job.device_ms is not None:
            job.measured = max(1, job.device_ms - (job.load_ms or 0)), job.load_ms
        case ev.JobCancelled():
            job.left = event.how == "queued"


def _kind(job: _Job) -> str:
    return f"{job.created.model} {job.created.bucket or ''}"


class _Typical:
    """The median of what was measured of a kind, else of all."""

    def __init__(self, measured: Iterable[tuple[str, int]]) -> None:
        found: dict[str, list[int]] = {}
        for kind, ms in measured:
            found.setdefault(kind, []).append(ms)
        self._of: Mapping[str, int] = {kind: median_low(several) for kind, several in found.items()}
        every = [ms for several in found.values() for ms in several]
        self._of_all = median_low(every) if every else _NO_MS

    def __call__(self, kind: str) -> int:
        return self._of.get(kind, self._of_all)

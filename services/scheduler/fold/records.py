"""What the fold keeps of each job, worker, slot and offer: facts of scheduling only. Changed by the fold alone."""

from dataclasses import dataclass, field

from contracts.job import JobStatus

BANDS: dict[str, int] = {"urgent": 0, "high": 1, "normal": 2, "low": 3}  # smaller is served first
PRESSING = 1  # bands up to this one overtake what lies on a deck


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer that stands: it lies on the deck of this slot."""

    id: str
    worker_id: str
    slot: int
    bytes: int  # 0: the whole slot
    est_ms: int
    hold_until_ms: int | None = None


@dataclass(slots=True)
class Job:
    """A job that is not forgotten. `order` is its place among all admissions; `first` and `last` are positions."""

    id: str
    tenant_id: str
    model: str
    band: int
    order: int
    first: str
    last: str
    max_attempts: int
    timeout_ms: int
    bytes: int
    start_by_ms: int | None
    hooks: frozenset[str]
    user: str = ""  # who inside the tenant, as a digest
    bucket: str = ""  # parameters that decide how long it takes
    max_batch: int = 1
    resources: tuple[tuple[str, int], ...] = ()  # external limits a start draws on, and how many tokens
    status: JobStatus = JobStatus.QUEUED
    run: int = 1
    fence: int = 0
    attempt: int = 0
    queued_ms: int = 0
    not_before_ms: int | None = None  # it becomes eligible by an entry, not by the clock
    start_by_at_ms: int | None = None  # None once it was started in this run
    offers: dict[str, Offer] = field(default_factory=dict)
    declines: int = 0
    worker_id: str | None = None
    slot: int | None = None
    started_ms: int = 0
    runs_from_ms: int = 0  # the run-for clock begins when the model is loaded
    load_ms: int = 0  # of the present attempt
    held: bool = False  # has waited for a busy device once, and does not again
    device_ms: int | None = None  # of the present attempt, once the device is free again
    charged_ms: int = 0  # what the present attempt is charged for while it is in flight
    is_charged: bool = False
    tokens_until_ms: int | None = None  # those of its external limits, taken by an offer and not used by a start
    sharers: int = 1  # members of its batch: they share the device's time
    limited: int = 0  # times in this run that a provider said "not now"
    limited_since_ms: int | None = None  # the first of them, while nothing else ended an attempt
    on_device: bool = False
    cancel_requested: bool = False
    ending: bool = False  # its last attempt failed; what ends it follows in the same call
    aside: bool = False  # out of choice after a mismatch
    ended_ms: int = 0
    alone: bool = False  # it ran out of memory, or asks for more than was ever measured: a device for itself


@dataclass(slots=True)
class Slot:
    """One slot of a worker: what runs, what lies on its deck. `bytes` 0: memory is not accounted for."""

    index: int
    device: str
    kind: str
    bytes: int
    running_jobs: dict[str, int] = field(default_factory=dict)  # job -> bytes, 0: all; several are a batch
    free_at_ms: int = 0  # when what runs should be over
    est_ms: int = 0  # for how long all that runs was charged
    guessed: bool = False  # nobody has measured how long that takes
    deck_offers: dict[str, str] = field(default_factory=dict)  # offer -> job; several are a batch
    deck_bytes: int = 0  # that were measured
    deck_unmeasured: int = 0  # offers that get the whole device: nobody has measured them, or they are to be alone
    resident: tuple[str, ...] = ()  # models in memory, `name@version`
    pinned: tuple[tuple[str, int], ...] = ()  # what a model keeps beside `bytes`: its own jobs have it, too
    total_bytes: int = 0  # of its device, with what other programs hold of it
    listed: bool = True  # the worker still names it
    aside: bool = False  # out of choice after a mismatch

    @property
    def running(self) -> str | None:
        """What runs; of a batch the job that started first."""
        return next(iter(self.running_jobs), None)

    @property
    def running_bytes(self) -> int:
        """Bytes of what runs; the members of a batch count singly. Who is alone has the whole device."""
        sizes = self.running_jobs.values()
        return self.bytes if 0 in sizes else sum(sizes)

    @property
    def is_whole(self) -> bool:
        """Whether what runs or lies on deck has the whole device."""
        return self.deck_unmeasured > 0 or 0 in self.running_jobs.values()

    @property
    def deck(self) -> str | None:
        """The job on deck; of a batch the first one."""
        return next(iter(self.deck_offers.values()), None)

    @property
    def deck_offer(self) -> str:
        """The offer on deck, "" without one; of a batch the first one."""
        return next(iter(self.deck_offers), "")

    @property
    def held_bytes(self) -> int:
        """What the slot may need at once: the deck takes over the room of what runs."""
        return max(self.running_bytes, self.bytes if self.deck_unmeasured else self.deck_bytes)

    def lay(self, offer_id: str, job_id: str, size_bytes: int) -> None:
        """Put an offer on the deck."""
        if offer_id not in self.deck_offers:
            self.deck_offers[offer_id] = job_id
            self.deck_bytes += size_bytes
            self.deck_unmeasured += not size_bytes

    def lift(self, offer_id: str, size_bytes: int) -> None:
        """Take an offer off the deck, if it lies there."""
        if self.deck_offers.pop(offer_id, None) is not None:
            self.deck_bytes -= size_bytes
            self.deck_unmeasured -= not size_bytes


@dataclass(slots=True)
class Worker:
    """A worker that is neither lost nor drained. `last` is the position of the newest entry about it."""

    id: str
    last: str
    models: frozenset[str]
    slots: dict[int, Slot]
    draining: bool = False

    def serves(self, model: str) -> bool:
        """Whether it lists the model, as `name@version` or by its name alone."""
        return model in self.models or model.partition("@")[0] in self.models

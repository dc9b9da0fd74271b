"""What a round of choosing says, and what it is asked about beside the places. Pure."""

from dataclasses import dataclass

from services.scheduler.fold.lines import JobClass
from services.scheduler.fold.placement import Place


@dataclass(frozen=True, slots=True)
class Choice:
    """Offer this job to this slot. `anchor`: the tenant of the fair choice, "" for a further offer of a job."""

    job_id: str
    worker_id: str
    slot: int
    device: str
    bytes: int
    est_ms: int
    wait_ms: int
    anchor: str
    why: str
    phase: str = "flat"
    hold_until_ms: int | None = None
    batch: int | None = None  # number of the choice of this round whose job it shares a pass with, or its own
    batch_size: int = 1
    alone: bool = False  # it gets the whole device, `bytes` of it, and a fresh process


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Take the offer of `job_id` back from this deck: `better_job_id` shall have the room, in a later turn."""

    job_id: str
    offer_id: str
    worker_id: str
    slot: int
    better_job_id: str


@dataclass(frozen=True, slots=True)
class OnDeck:
    """What lies on the deck of a place, as far as overtaking needs to know."""

    place: Place
    job_id: str
    offer_id: str
    tenant_id: str
    band: int


@dataclass(frozen=True, slots=True)
class Held:
    """A job that waits on one deck for a model, until then alone."""

    job_id: str
    job_class: JobClass
    until_ms: int
    since_ms: int
